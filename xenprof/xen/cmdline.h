// What Xen's own command line says about the PMU.
#ifndef XENPROF_XEN_CMDLINE_H_
#define XENPROF_XEN_CMDLINE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace xenprof::xen {

enum class VpmuOption {
  kOff,     // absent (Xen's default), vpmu=off or a value Xen does not understand
  kOn,      // vpmu=on, or one of bts, ipc, arch, which imply it
  kGlobal,  // vpmu=global of the vPMU v2 proposal: dom0 drives the whole PMU, nothing to switch
  kGuests,  // vpmu=hvm of the same proposal: the PMU belongs to guests, dom0 has none
};

struct XenOptions {
  VpmuOption vpmu = VpmuOption::kOff;
  bool vpmu_given = false;
  bool watchdog = false;        // Xen's NMI watchdog (watchdog, watchdog_timeout)
  bool dom0_vcpus_pin = false;  // dom0_vcpus_pin or dom0_vcpus_pin=on
  std::string dom0_max_vcpus;   // as given, "" when absent
  std::string dom0;             // value of the last dom0=..., e.g. "pvh"
};

// Reads options as Xen does (xen/common/kernel.c, xen/arch/x86/cpu/vpmu.c, xen/arch/x86/nmi.c): in order, a
// later one replaces an earlier one, "no-NAME" turns a boolean off. Never fails: what is not understood is
// left at its default.
XenOptions ParseXenCommandLine(absl::string_view command_line);

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_CMDLINE_H_
