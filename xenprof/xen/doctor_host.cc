// The doctor's checks of the host: what it is, its pinning, its PMU, its symbols.
#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "xenprof/xen/doctor_internal.h"
#include "xenprof/xen/files.h"
#include "xenprof/xen/pinning.h"
#include "xenprof/xen/xen_symbol_files.h"

namespace xenprof::xen::doctor {
namespace {

// "0-3,6" as /sys/devices/system/cpu/online writes it. At most 4096 CPUs.
std::vector<uint32_t> OnlineCpus(const std::string& root) {
  std::vector<uint32_t> cpus;
  const std::string text = ReadLine(RootedPath(root, "/sys/devices/system/cpu/online")).value_or("0");
  for (absl::string_view range : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    uint32_t from = 0, to = 0;
    if (!absl::SimpleAtoi(ends[0], &from)) continue;
    to = from;
    if (ends.size() > 1 && !absl::SimpleAtoi(ends[1], &to)) continue;
    for (uint32_t cpu = from; cpu <= to && cpus.size() < 4096; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace

Finding CheckDom0(const Context& context) {
  Finding finding = MakeFinding("dom0", "This host");
  finding.found = context.host.summary;
  if (!context.host.on_xen) {
    finding.severity = Severity::kInfo;
    finding.found =
        "Not a Xen host: profiles show this kernel and its programs only, from cycles or cpu-clock.";
    return finding;
  }
  if (!context.host.dom0.value_or(true)) {
    finding.severity = Severity::kError;
    finding.why = "Only dom0 can see Xen and other guests; here profiles show this guest only.";
    finding.advice = "Run xenprofd in dom0.";
    return finding;
  }
  if (context.pmu_host.pvh_dom0) {
    finding.severity = Severity::kError;
    finding.why = "Xen has a vPMU for a PV dom0 only: without it neither Xen nor guests can be sampled.";
    AddXenOptionFix(context, "dom0=pv", &finding);
    return finding;
  }
  if (!context.host.dom0.has_value()) {
    finding.severity = Severity::kInfo;
    finding.why = "Neither xenfs nor sysfs says whether this is dom0.";
    finding.commands = {"mount -t xenfs xenfs /proc/xen"};
  }
  return finding;
}

Finding CheckLockdown(const Context& context) {
  Finding finding = MakeFinding("lockdown", "Kernel lockdown");
  finding.found =
      absl::StrCat(context.lockdown.empty() || context.lockdown == "none" ? "None" : context.lockdown,
                   "; secure boot is ", context.secure_boot ? "on." : "off.");
  if (context.lockdown == "confidentiality") {
    finding.severity = Severity::kError;
    finding.why = "This lockdown forbids perf events and hides kernel addresses.";
    finding.advice = "Boot with lockdown=integrity, or none, on the kernel's command line.";
  } else if (context.secure_boot && context.host.on_xen) {
    finding.severity = Severity::kInfo;
    finding.why =
        "Secure boot locks Xen's command line: what needs an option there cannot be changed on this host.";
  }
  return finding;
}

Finding CheckPinningOfDom0(const Context& context) {
  Finding finding = MakeFinding("pinning", "Pinning of dom0's vCPUs");
  if (context.in.hypervisor == nullptr) {
    Skip(&finding, absl::StrCat("Xen cannot be asked: ", context.in.hypervisor_problem));
    return finding;
  }
  const absl::StatusOr<std::vector<CpuTopology>> topology = context.in.hypervisor->Topology();
  const absl::StatusOr<std::vector<std::vector<uint32_t>>> affinity = context.in.hypervisor->HardAffinity(0);
  if (!topology.ok() || !affinity.ok()) {
    Skip(&finding, std::string((topology.ok() ? affinity.status() : topology.status()).message()));
    return finding;
  }
  std::vector<uint32_t> cpus;
  for (const CpuTopology& cpu : *topology) cpus.push_back(cpu.cpu);
  const PinningReport report = CheckPinning(cpus, *affinity);
  finding.found = report.found;
  if (report.right) return finding;
  finding.severity = Severity::kError;
  finding.why =
      "Xen sends a CPU's PMU interrupt to a fixed dom0 vCPU. When that one runs on another CPU, samples are "
      "counted "
      "for the wrong CPU and task, or are lost.";
  const std::string persistent = cpus.size() > affinity->size()
                                     ? absl::StrCat("dom0_max_vcpus=", cpus.back() + 1, " dom0_vcpus_pin")
                                     : "dom0_vcpus_pin";
  AddXenOptionFix(context, persistent, &finding);
  if (report.fixable_now && !report.commands.empty()) {
    std::vector<std::string> now = report.commands;
    now.insert(now.end(), finding.commands.begin(), finding.commands.end());
    finding.commands = std::move(now);
    finding.advice = absl::StrCat("The xl lines mend it until the next boot, the rest for good.",
                                  finding.advice.empty() ? "" : " ", finding.advice);
  }
  return finding;
}

Finding CheckPmu(const Context& context) {
  Finding finding = MakeFinding("pmu", "PMU event");
  if (!context.in.privileged) {
    Skip(&finding, "Opening events takes root.");
    return finding;
  }
  const bool dom0 = context.is_dom0();
  if (dom0 && !context.vpmu_global && context.pmu_error != 0) {
    Skip(&finding, "The vPMU is not to be had; cpu-clock, which sees dom0 only, is used.");
    return finding;
  }
  if (dom0 && !context.vpmu_global && context.mode == PmuMode::kOff) {
    Skip(&finding, "Not tried while the vPMU is in mode off.");
    return finding;
  }
  const std::vector<uint32_t> cpus = OnlineCpus(context.in.root);
  std::vector<uint32_t> silent;
  int error = 0;
  uint64_t count = 0;
  uint32_t max_xen_frames = 0;
  for (uint32_t cpu : cpus) {
    const PerfProbeResult result = context.in.perf({.hardware = true, .cpu = cpu});
    if (result.error != 0) {
      error = result.error;
      break;
    }
    count += result.count;
    max_xen_frames = std::max(max_xen_frames, result.max_xen_frames);
    if (result.samples == 0) silent.push_back(cpu);
    if (silent.size() > 8) break;  // it is not one CPU
  }
  if (error == 0 && silent.empty()) {
    finding.found = cpus.size() == 1
                        ? "cycles gives samples on the one CPU."
                        : absl::StrCat("cycles gives samples on each of ", cpus.size(), " CPUs.");
    if (max_xen_frames >= 2) {
      absl::StrAppend(&finding.found, " One had ", max_xen_frames, " frames of Xen: stacks work.");
    }
    return finding;
  }
  const PerfProbeResult clock = context.in.perf({.hardware = false, .cpu = cpus.empty() ? 0 : cpus.front()});
  std::string what;
  if (error != 0) {
    what = absl::StrCat("cycles cannot be opened: ", ExplainPerfError(error), ".");
  } else if (count == 0) {
    what = "cycles can be opened but counts nothing.";
  } else {
    what = absl::StrCat("cycles counts but gives no sample on CPU ", absl::StrJoin(silent, ", "), ".");
  }
  if (clock.error != 0) {
    finding.severity = Severity::kError;
    finding.found = absl::StrCat(what, " Neither can cpu-clock: ", ExplainPerfError(clock.error), ".");
    finding.why = "Without either there are no samples at all.";
    return finding;
  }
  finding.found = absl::StrCat(what, " cpu-clock works and is used instead.");
  if (!dom0) {
    finding.severity = Severity::kInfo;
    return finding;
  }
  finding.severity = Severity::kError;
  finding.why = "cpu-clock sees dom0 only: profiles will say \"dom0 only\" and lack Xen and guests.";
  finding.advice =
      error == ENOENT || error == EOPNOTSUPP
          ? "The processor's PMU is hidden from Xen (as under an emulator or a nested hypervisor), or dom0's "
            "kernel does not know it: see \"Performance Events\" in dmesg."
          : "See \"Performance Events\" and \"VPMU\" in dmesg and in xl dmesg.";
  return finding;
}

Finding CheckSymbols(const Context& context) {
  Finding finding = MakeFinding("symbols", "Names of Xen's functions");
  std::string build_id = context.host.build_id;
  if (context.in.hypervisor != nullptr) {
    if (absl::StatusOr<std::string> id = context.in.hypervisor->BuildId(); id.ok()) build_id = *std::move(id);
  }
  const XenSymbolFiles files = FindXenSymbolFiles(context.in.root, build_id);
  if (files.xensyms) {
    finding.found = "/proc/xen/xensyms has them, straight from the running Xen.";
    return finding;
  }
  if (!files.matching.empty()) {
    finding.found = absl::StrCat(files.matching, " has the running Xen's build id.");
    return finding;
  }
  finding.severity = Severity::kWarning;
  if (!files.mismatched.empty()) {
    finding.found = absl::StrCat("No symbols of the running Xen: ", absl::StrJoin(files.mismatched, ", "),
                                 files.mismatched.size() == 1 ? " is" : " are", " of another build.");
  } else if (!files.maps.empty()) {
    finding.severity = Severity::kInfo;
    finding.found = absl::StrCat("Only ", absl::StrJoin(files.maps, ", "),
                                 ", which cannot be checked against the running Xen.");
  } else {
    finding.found = files.xenfs_mounted
                        ? "No symbols of Xen: this kernel has no /proc/xen/xensyms, and there is no xen-syms."
                        : "No symbols of Xen: xenfs is not mounted, and there is no xen-syms.";
  }
  finding.why = "Frames of Xen will be bare addresses.";
  if (!files.xenfs_mounted) {
    finding.commands = {"mount -t xenfs xenfs /proc/xen"};
  } else {
    finding.commands = XenSymbolCommands(context.platform.distribution, context.host.version);
    if (finding.commands.empty()) finding.advice = "Install the xen-syms that belongs to this build of Xen.";
  }
  return finding;
}

Finding CheckLibxenctrl(const Context& context) {
  Finding finding = MakeFinding("libxenctrl", "libxenctrl");
  if (context.in.hypervisor == nullptr) {
    finding.severity = context.in.privileged ? Severity::kWarning : Severity::kInfo;
    finding.found =
        context.in.hypervisor_problem.empty() ? "Xen was not asked." : context.in.hypervisor_problem;
    finding.why =
        "Without it Xen's command line, pinning and domains are not known, and some checks above were "
        "skipped.";
    return finding;
  }
  if (absl::StatusOr<PhysicalInfo> info = context.in.hypervisor->Physical(); !info.ok()) {
    finding.severity = Severity::kWarning;
    finding.found = std::string(info.status().message());
    finding.why = "Pinning, topology and domains are not known. Collection goes on without them.";
    return finding;
  }
  const absl::StatusOr<std::string> version = context.in.hypervisor->Version();
  finding.found = absl::StrCat("Matches the running Xen", version.ok() ? " " : "", version.value_or(""), ".");
  return finding;
}

Finding CheckSecurity(const Context& context) {
  Finding finding = MakeFinding("security", "Security of the vPMU");
  if (context.pmu_error != 0 && !context.vpmu_global) {
    Skip(&finding, "The vPMU is not to be had.");
    return finding;
  }
  finding.severity = Severity::kInfo;
  finding.found = "Xen's vPMU is on, which the Xen project does not support for security (XSA-163).";
  finding.why =
      "A guest that is given a vPMU (modes self and hv) might use its faults against the host. In mode all "
      "no "
      "guest has one.";
  finding.advice = "Where guests are not trusted, use mode all, or turn the vPMU off after profiling.";
  return finding;
}

}  // namespace xenprof::xen::doctor
