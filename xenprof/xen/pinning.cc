#include "xenprof/xen/pinning.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace xenprof::xen {
namespace {

std::string CpuList(const std::vector<uint32_t>& cpus) {
  std::vector<std::string> ranges;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    ranges.push_back(end - i == 1 ? absl::StrCat(cpus[i]) : absl::StrCat(cpus[i], "-", cpus[end - 1]));
    i = end;
  }
  return ranges.empty() ? "none" : absl::StrJoin(ranges, ",");
}

}  // namespace

PinningReport CheckPinning(absl::Span<const uint32_t> online_cpus,
                           absl::Span<const std::vector<uint32_t>> affinity) {
  PinningReport report;
  const size_t vcpus = affinity.size();
  if (vcpus == 0 || online_cpus.empty()) {
    report.found = "Dom0's vCPUs or the host's CPUs are not known.";
    return report;
  }
  std::string wrong;
  size_t wrong_count = 0;
  for (uint32_t cpu : online_cpus) {
    const size_t vcpu = cpu % vcpus;
    const std::vector<uint32_t>& allowed = affinity[vcpu];
    if (allowed.size() == 1 && allowed[0] == cpu) continue;
    if (++wrong_count <= 4) {
      absl::StrAppend(&wrong, wrong.empty() ? "" : "; ", "CPU ", cpu, " interrupts dom0 vCPU ", vcpu,
                      ", which may run on CPU ", CpuList(allowed));
    }
    report.commands.push_back(absl::StrCat("xl vcpu-pin 0 ", vcpu, " ", cpu));
  }
  if (wrong_count == 0) {
    report.right = true;
    report.found =
        absl::StrCat("Each of dom0's ", vcpus, " vCPUs is pinned to the CPU whose PMU interrupts it gets.");
    return report;
  }
  if (wrong_count > 4) absl::StrAppend(&wrong, "; and ", wrong_count - 4, " more");
  // Two CPUs that share a vCPU cannot both be right, whatever is pinned.
  report.fixable_now = online_cpus.back() < vcpus;
  if (!report.fixable_now) report.commands.clear();
  report.found = absl::StrCat("Dom0 has ", vcpus, " vCPUs for ", online_cpus.size(), " CPUs; ", wrong, ".");
  return report;
}

}  // namespace xenprof::xen
