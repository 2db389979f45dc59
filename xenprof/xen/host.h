// What this kernel's own files tell about the Xen below it, without asking Xen.
#ifndef XENPROF_XEN_HOST_H_
#define XENPROF_XEN_HOST_H_

#include <optional>
#include <string>

namespace xenprof::xen {

struct XenHost {
  bool on_xen = false;  // /sys/hypervisor/type says "xen"
  // From /proc/xen/capabilities (control_d), else /sys/hypervisor/start_flags/initdomain (Linux 6.3), else a
  // nil /sys/hypervisor/uuid. nullopt: none of them is there.
  std::optional<bool> dom0;
  std::string guest_type;                                  // "PV", "PVH", "HVM"; empty on kernels before 4.13
  std::string version, changeset, capabilities, compiler;  // empty: not given
  // Raw bytes. sysfs ends it at its first zero byte: other lengths than 16 and 20 are given as empty.
  std::string build_id;
  std::string summary;  // one sentence for people: what this host is
};

// `root` is put in front of /sys and /proc. Never fails: a host without those files is no Xen host.
XenHost DetectXenHost(const std::string& root = "/");

// Whether dom0's kernel takes hypervisor stacks out of the shared page: /proc/kallsyms has
// xen_hypervisor_callchain. nullopt: kallsyms cannot be read or is empty.
std::optional<bool> KernelHasHypervisorCallchain(const std::string& root = "/");

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_HOST_H_
