// What keeps this host from being profiled in full, why, and the line that mends it.
#ifndef XENPROF_XEN_DOCTOR_H_
#define XENPROF_XEN_DOCTOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "xenprof/xen/hypervisor.h"
#include "xenprof/xen/perf_probe.h"
#include "xenprof/xen/vpmu_files.h"

namespace xenprof::xen {

enum class Severity {
  kSkipped,  // could not be checked, or makes no sense here; `found` says why
  kOk,
  kInfo,
  kWarning,  // profiles will lack something, or be doubtful in part
  kError,    // profiles will lack Xen and guests altogether, or be wrong
};
// "skipped", "ok", "info", "warning", "error".
absl::string_view SeverityName(Severity severity);

struct Finding {
  std::string id;  // stable, for programs: "vpmu", "pinning", ...
  Severity severity = Severity::kOk;
  std::string title;   // a few words
  std::string found;   // sentences
  std::string why;     // why it matters; empty when all is well
  std::string advice;  // what to do where no command does it, and what to know before running the commands
  std::vector<std::string> commands;  // shell commands, as root, in this order
};

struct DoctorInputs {
  // Put in front of /sys, /proc, /boot, /etc, /usr and /opt.
  std::string root = "/";
  // Whether Xen's stack feature may be tried by writing old | 8 to pmu_features and putting the old value
  // back at once. Nothing else is ever changed.
  bool probe = true;
  Hypervisor* hypervisor = nullptr;  // null: not on Xen, or not to be had
  std::string hypervisor_problem;    // why it is null
  PmuFiles* pmu_files = nullptr;     // null: those below root
  PerfProbe perf = ProbePerfEvent;
  bool privileged = true;  // effective user is root
  // Of the configuration, for the kernel's limits.
  uint32_t frequency_hz = 97;
  uint64_t ring_bytes_per_cpu = 512 * 1024;
};

// Findings, the one true fault first: by severity, and within it causes before what follows from them. A host
// without Xen has that as its first finding. Never fails.
std::vector<Finding> RunDoctor(const DoctorInputs& inputs);

// The worst severity among them.
Severity WorstSeverity(const std::vector<Finding>& findings);

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_DOCTOR_H_
