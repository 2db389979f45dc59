// The doctor's checks of Linux's limits on perf events.
#include <unistd.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "xenprof/xen/doctor_internal.h"
#include "xenprof/xen/files.h"

namespace xenprof::xen::doctor {
namespace {

std::optional<int64_t> Sysctl(const Context& context, absl::string_view name) {
  int64_t value = 0;
  const absl::StatusOr<std::string> text =
      ReadLine(RootedPath(context.in.root, absl::StrCat("/proc/sys/kernel/", name)));
  if (!text.ok() || !absl::SimpleAtoi(*text, &value)) return std::nullopt;
  return value;
}

Finding MakeSysctlFinding(absl::string_view name) { return MakeFinding(name, absl::StrCat("kernel.", name)); }

// Whether kallsyms gives addresses: nullopt when it cannot be read or is empty.
std::optional<bool> KallsymsHasAddresses(const Context& context) {
  const absl::StatusOr<std::string> text = ReadSmallFile(RootedPath(context.in.root, "/proc/kallsyms"), 8192);
  if (!text.ok() || text->empty()) return std::nullopt;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    // per-CPU symbols come first and start at 0
    if (line.size() > 16 && line.substr(0, 16).find_first_not_of('0') != absl::string_view::npos) return true;
  }
  return false;
}

}  // namespace

std::vector<Finding> CheckLimits(const Context& context) {
  std::vector<Finding> findings;
  {
    Finding finding = MakeSysctlFinding("perf_event_paranoid");
    const std::optional<int64_t> value = Sysctl(context, "perf_event_paranoid");
    if (!value) {
      finding.severity = Severity::kError;
      finding.found = "There is no such file: this kernel was built without perf events.";
      finding.why = "Without them there are no samples.";
      finding.advice = "Boot a kernel with CONFIG_PERF_EVENTS=y.";
    } else {
      finding.found =
          absl::StrCat(*value, "; xenprofd runs as root or with CAP_PERFMON, to which it does not apply.");
    }
    findings.push_back(std::move(finding));
  }
  {
    Finding finding = MakeSysctlFinding("kptr_restrict");
    const std::optional<int64_t> value = Sysctl(context, "kptr_restrict");
    const std::optional<bool> addresses = KallsymsHasAddresses(context);
    finding.found = value ? absl::StrCat(*value, ".") : "Not known.";
    if (value.value_or(0) >= 2 || (context.in.privileged && addresses.has_value() && !*addresses)) {
      finding.severity = Severity::kWarning;
      absl::StrAppend(&finding.found, " /proc/kallsyms shows every address as 0, even to root.");
      finding.why =
          "Kernel functions will have no names on this host; addresses are kept for naming elsewhere.";
      finding.commands = {"sysctl -w kernel.kptr_restrict=1"};
    } else {
      absl::StrAppend(&finding.found, " Root sees kernel addresses.");
    }
    findings.push_back(std::move(finding));
  }
  {
    Finding finding = MakeSysctlFinding("perf_event_max_sample_rate");
    const std::optional<int64_t> value = Sysctl(context, "perf_event_max_sample_rate");
    if (!value) {
      finding.severity = Severity::kSkipped;
      finding.found = "There is no such file.";
    } else {
      finding.found = absl::StrCat(*value, " Hz; ", context.in.frequency_hz, " Hz are wanted.");
      if (*value < static_cast<int64_t>(context.in.frequency_hz)) {
        finding.severity = Severity::kWarning;
        finding.why =
            "The kernel refuses a higher frequency than this. It lowers the limit by itself when samples "
            "take it "
            "too long.";
        finding.commands = {absl::StrCat("sysctl -w kernel.perf_event_max_sample_rate=",
                                         std::max<uint32_t>(context.in.frequency_hz * 4, 1000))};
      }
    }
    findings.push_back(std::move(finding));
  }
  {
    Finding finding = MakeSysctlFinding("perf_event_mlock_kb");
    const std::optional<int64_t> value = Sysctl(context, "perf_event_mlock_kb");
    if (!value) {
      finding.severity = Severity::kSkipped;
      finding.found = "There is no such file.";
    } else {
      // Rings have one page of control beside their data.
      const uint64_t page_kb = static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / 1024;
      const uint64_t wanted_kb = context.in.ring_bytes_per_cpu / 1024 + page_kb;
      finding.found = absl::StrCat(*value, " KiB a CPU; a ring takes ", wanted_kb, " KiB a CPU.");
      if (*value >= 0 && wanted_kb > static_cast<uint64_t>(*value) && !context.in.privileged) {
        finding.severity = Severity::kInfo;
        finding.why =
            "Without CAP_IPC_LOCK larger rings are refused with EPERM. xenprofd.service has "
            "LimitMEMLOCK=infinity.";
        finding.commands = {absl::StrCat("sysctl -w kernel.perf_event_mlock_kb=", wanted_kb)};
      } else if (*value >= 0 && wanted_kb > static_cast<uint64_t>(*value)) {
        absl::StrAppend(&finding.found, " Root is not bound by it.");
      }
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace xenprof::xen::doctor
