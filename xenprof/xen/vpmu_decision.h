// What each answer of /sys/hypervisor/pmu means and what is done about it: one table, used by the daemon and
// by `xenprofctl doctor`.
#ifndef XENPROF_XEN_VPMU_DECISION_H_
#define XENPROF_XEN_VPMU_DECISION_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "xenprof/xen/vpmu_files.h"

namespace xenprof::xen {

// What was being done when the kernel answered.
enum class PmuStep {
  kRead,             // either file
  kSetFeatures,      // old | bit 3
  kSetMode,          // a mode better than the current one
  kRestoreMode,      // back to the saved one
  kRestoreFeatures,  // back to the saved ones
};

// Why Xen answers EOPNOTSUPP to everything: the answer is one for several faults, the rest of the host tells
// which.
enum class PmuCause {
  kAny,             // in a row: whatever the cause. As a finding: the host gives no hint
  kNotEnabled,      // no vpmu= on Xen's command line, or vpmu=off
  kWatchdog,        // vpmu=on, but Xen's NMI watchdog has the counter
  kUnsupportedCpu,  // Xen knows no vPMU for this processor
  kPvhDom0,         // a PVH dom0 has no vPMU
  kGuestsOnly,      // vpmu=hvm: the PMU belongs to guests
};

enum class PmuAction {
  kProceed,        // done, next step
  kNoPmu,          // collect with the software clock
  kWithoutStacks,  // go on, Xen samples have their leaf only
  kNextMode,       // try the next lesser mode
  kKeepSaved,      // could not be put back now: keep the saved values and try again later
};

inline constexpr int kAnyError = -1;

struct PmuDecision {
  PmuStep step;
  int error;  // errno, 0 for success, kAnyError
  PmuCause cause;
  PmuAction action;
  const char* found;        // what the answer means, a sentence
  const char* remedy;       // what to do about it, a sentence; "" when nothing is to be done
  const char* xen_options;  // options of Xen's command line that mend it, "" when it is not a matter of those
};

// First match wins; every (step, error, cause) matches a row.
absl::Span<const PmuDecision> PmuDecisionTable();
const PmuDecision& DecidePmu(PmuStep step, int error, PmuCause cause);

// Modes in the order they are tried.
inline constexpr PmuMode kPmuModePreference[] = {PmuMode::kAll, PmuMode::kHv, PmuMode::kSelf};

// What is known of the host beside the two files. Empty strings: not known.
struct PmuHostFacts {
  bool command_line_known = false;
  std::string command_line;  // Xen's, not the kernel's
  std::string console_log;   // Xen's, as far as its ring still has it
  bool pvh_dom0 = false;
  std::vector<std::string> guests;  // running domains other than dom0, "name (domid 3)"
};
PmuCause FindPmuCause(const PmuHostFacts& host);

// "found remedy" plus, where guests are the reason, which ones can be.
std::string ExplainPmuDecision(const PmuDecision& decision, int error, const PmuHostFacts& host);

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_VPMU_DECISION_H_
