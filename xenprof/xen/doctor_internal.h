// Shared by the doctor's checks; nothing else includes it.
#ifndef XENPROF_XEN_DOCTOR_INTERNAL_H_
#define XENPROF_XEN_DOCTOR_INTERNAL_H_

#include <optional>
#include <string>
#include <vector>

#include "xenprof/xen/cmdline.h"
#include "xenprof/xen/doctor.h"
#include "xenprof/xen/fix_lines.h"
#include "xenprof/xen/host.h"
#include "xenprof/xen/vpmu_decision.h"

namespace xenprof::xen::doctor {

Finding MakeFinding(absl::string_view id, absl::string_view title);
// The check could not be made, for `reason`.
void Skip(Finding* finding, absl::string_view reason);

// Everything that more than one check looks at, read once.
struct Context {
  const DoctorInputs& in;
  XenHost host;
  Platform platform;
  PmuHostFacts pmu_host;
  XenOptions options;  // only meaningful when pmu_host.command_line_known
  bool secure_boot = false;
  std::string lockdown;  // "none", "integrity", "confidentiality", "" when unknown
  int pmu_error = 0;     // errno of reading the vPMU's state
  PmuMode mode = PmuMode::kOff;
  uint64_t features = 0;
  PmuCause cause = PmuCause::kAny;  // of EOPNOTSUPP
  bool vpmu_global = false;

  bool vpmu_readable() const { return !vpmu_global && pmu_error == 0; }
  bool is_dom0() const { return host.on_xen && host.dom0.value_or(true); }
};

Context MakeContext(const DoctorInputs& inputs);

// What the feature probe found; shared by the checks of stacks and of mode `all`.
struct StackProbe {
  bool done = false;  // `error` is an answer
  bool already_on = false;
  int error = 0;
  bool restored = true;
};
StackProbe ProbeStacks(const Context& context, PmuFiles& files);

// Adds commands, or advice where there are none, that set Xen options; says so when secure boot forbids them.
void AddXenOptionFix(const Context& context, absl::string_view options, Finding* finding);

Finding CheckDom0(const Context& context);
Finding CheckLockdown(const Context& context);
Finding CheckWatchdog(const Context& context);
Finding CheckVpmu(const Context& context);
Finding CheckPinningOfDom0(const Context& context);
Finding CheckPmu(const Context& context);
Finding CheckModeAll(const Context& context, const StackProbe& probe);
Finding CheckXenStacks(const Context& context, const StackProbe& probe);
Finding CheckKernelStacks(const Context& context, const StackProbe& probe);
Finding CheckFramePointers(const Context& context, const StackProbe& probe);
Finding CheckSymbols(const Context& context);
Finding CheckLibxenctrl(const Context& context);
Finding CheckSecurity(const Context& context);
// perf_event_paranoid, kptr_restrict, perf_event_max_sample_rate, perf_event_mlock_kb, one finding each.
std::vector<Finding> CheckLimits(const Context& context);

}  // namespace xenprof::xen::doctor

#endif  // XENPROF_XEN_DOCTOR_INTERNAL_H_
