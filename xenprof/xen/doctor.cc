#include "xenprof/xen/doctor.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "xenprof/xen/doctor_internal.h"
#include "xenprof/xen/facts.h"
#include "xenprof/xen/files.h"

namespace xenprof::xen {

absl::string_view SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kSkipped:
      return "skipped";
    case Severity::kOk:
      return "ok";
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "error";
}

Severity WorstSeverity(const std::vector<Finding>& findings) {
  Severity worst = Severity::kSkipped;
  for (const Finding& finding : findings) worst = std::max(worst, finding.severity);
  return worst;
}

namespace doctor {
namespace {

// /sys/kernel/security/lockdown: "none [integrity] confidentiality".
std::string ReadLockdown(const std::string& root) {
  const std::string text = ReadLine(RootedPath(root, "/sys/kernel/security/lockdown")).value_or("");
  const size_t open = text.find('[');
  const size_t close = text.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return "";
  return text.substr(open + 1, close - open - 1);
}

bool ReadSecureBoot(const std::string& root) {
  // Four bytes of attributes, then the value (UEFI specification, "Globally Defined Variables").
  const std::string text =
      ReadSmallFile(
          RootedPath(root, "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"), 16)
          .value_or("");
  return text.size() >= 5 && text[4] == 1;
}

}  // namespace

Context MakeContext(const DoctorInputs& inputs) {
  Context context{inputs, DetectXenHost(inputs.root), DetectPlatform(inputs.root)};
  context.secure_boot = ReadSecureBoot(inputs.root);
  context.lockdown = ReadLockdown(inputs.root);
  if (!context.host.on_xen) return context;
  context.pmu_host = CollectPmuHostFacts(context.host, inputs.hypervisor);
  context.options = ParseXenCommandLine(context.pmu_host.command_line);
  context.vpmu_global = context.pmu_host.command_line_known && context.options.vpmu == VpmuOption::kGlobal;
  SysfsPmuFiles sysfs(RootedPath(inputs.root, "/sys"));
  PmuFiles& files = inputs.pmu_files != nullptr ? *inputs.pmu_files : sysfs;
  context.pmu_error = ReadPmuMode(files, &context.mode);
  if (context.pmu_error == 0) context.pmu_error = ReadPmuFeatures(files, &context.features);
  context.cause = FindPmuCause(context.pmu_host);
  return context;
}

StackProbe ProbeStacks(const Context& context, PmuFiles& files) {
  StackProbe probe;
  if (!context.vpmu_readable()) return probe;
  if ((context.features & kPmuFeatureHvStacktrace) != 0) {
    probe.done = probe.already_on = true;
    return probe;
  }
  if (!context.in.probe) return probe;
  // Nothing that can be held off comes between the two writes.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  probe.done = true;
  probe.error = WritePmuFeatures(files, context.features | kPmuFeatureHvStacktrace);
  if (probe.error == 0) probe.restored = WritePmuFeatures(files, context.features) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return probe;
}

Finding MakeFinding(absl::string_view id, absl::string_view title) {
  Finding finding;
  finding.id = std::string(id);
  finding.title = std::string(title);
  return finding;
}

void Skip(Finding* finding, absl::string_view reason) {
  finding->severity = Severity::kSkipped;
  finding->found = std::string(reason);
}

void AddXenOptionFix(const Context& context, absl::string_view options, Finding* finding) {
  if (options.empty()) return;
  const auto advise = [finding](absl::string_view text) {
    absl::StrAppend(&finding->advice, finding->advice.empty() ? "" : " ", text);
  };
  if (context.secure_boot) {
    advise(absl::StrCat(
        "Secure boot is on, which locks Xen's command line: with it, ", options,
        " cannot be set here. It takes a boot without secure boot, or a Xen image signed with these "
        "options built in."));
    return;
  }
  finding->commands = XenOptionCommands(context.platform.distribution, options);
  if (finding->commands.empty()) advise(XenOptionAdvice(options));
}

}  // namespace doctor

std::vector<Finding> RunDoctor(const DoctorInputs& inputs) {
  const doctor::Context context = doctor::MakeContext(inputs);
  std::vector<Finding> findings;
  findings.push_back(doctor::CheckDom0(context));
  findings.push_back(doctor::CheckLockdown(context));
  if (context.is_dom0()) {
    SysfsPmuFiles sysfs(RootedPath(inputs.root, "/sys"));
    const doctor::StackProbe probe =
        doctor::ProbeStacks(context, inputs.pmu_files != nullptr ? *inputs.pmu_files : sysfs);
    // Causes before what follows from them.
    findings.push_back(doctor::CheckWatchdog(context));
    findings.push_back(doctor::CheckVpmu(context));
    findings.push_back(doctor::CheckPinningOfDom0(context));
    findings.push_back(doctor::CheckPmu(context));
    findings.push_back(doctor::CheckModeAll(context, probe));
    findings.push_back(doctor::CheckXenStacks(context, probe));
    findings.push_back(doctor::CheckKernelStacks(context, probe));
    findings.push_back(doctor::CheckFramePointers(context, probe));
    findings.push_back(doctor::CheckSymbols(context));
    findings.push_back(doctor::CheckLibxenctrl(context));
    findings.push_back(doctor::CheckSecurity(context));
  } else {
    findings.push_back(doctor::CheckPmu(context));
  }
  std::vector<Finding> limits = doctor::CheckLimits(context);
  std::move(limits.begin(), limits.end(), std::back_inserter(findings));

  // Whether there is a Xen at all frames everything else.
  const auto first = findings.begin() + (context.is_dom0() ? 0 : 1);
  std::stable_sort(first, findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return findings;
}

}  // namespace xenprof::xen
