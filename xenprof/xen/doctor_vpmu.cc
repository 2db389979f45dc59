// The doctor's checks of the vPMU and of Xen's stacks.
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "xenprof/xen/doctor_internal.h"
#include "xenprof/xen/files.h"
#include "xenprof/xen/vpmu_decision.h"

namespace xenprof::xen::doctor {
namespace {

constexpr char kBootUnit[] = "systemctl enable xenprofd-vpmu-boot.service";

// The fault that another finding reports as its own.
bool CauseIsElsewhere(const Context& context) {
  return context.pmu_error == EOPNOTSUPP &&
         (context.cause == PmuCause::kWatchdog || context.cause == PmuCause::kPvhDom0);
}

}  // namespace

Finding CheckWatchdog(const Context& context) {
  Finding finding = MakeFinding("watchdog", "Xen's NMI watchdog");
  const bool took_pmu = context.pmu_error == EOPNOTSUPP && context.cause == PmuCause::kWatchdog;
  if (took_pmu || (context.pmu_host.command_line_known && context.options.watchdog && !context.vpmu_global)) {
    finding.severity = took_pmu ? Severity::kError : Severity::kWarning;
    finding.found = took_pmu
                        ? "Xen's NMI watchdog is on, and Xen turned its vPMU off for it."
                        : "Xen's NMI watchdog is on: with vpmu=on, Xen would turn its vPMU off again for it.";
    if (absl::StrContains(context.pmu_host.console_log, "Turning VPMU off")) {
      absl::StrAppend(&finding.found, " Its log says: \"NMI watchdog is enabled. Turning VPMU off.\"");
    }
    finding.why =
        "Both use the same counter and interrupt. Without the vPMU neither Xen nor guests can be sampled.";
    finding.advice = "With Xen's watchdog off, a Xen that hangs is no longer rebooted by it.";
    AddXenOptionFix(context,
                    context.options.vpmu == VpmuOption::kOff && context.pmu_host.command_line_known
                        ? "vpmu=on watchdog=0"
                        : "watchdog=0",
                    &finding);
    return finding;
  }
  if (!context.pmu_host.command_line_known) {
    Skip(&finding, "Xen's command line could not be read.");
    return finding;
  }
  finding.found = "Off.";
  // Linux's own detector takes one counter of dom0's PMU. Turning only that one off makes the soft-lockup
  // detector reboot some hosts, so nothing is advised.
  if (ReadLine(RootedPath(context.in.root, "/proc/sys/kernel/nmi_watchdog")).value_or("0") == "1") {
    absl::StrAppend(&finding.found,
                    " (Dom0's kernel has a hard-lockup detector of its own, which takes one counter of "
                    "the PMU; leave it as it is.)");
  }
  return finding;
}

Finding CheckVpmu(const Context& context) {
  Finding finding = MakeFinding("vpmu", "Xen's vPMU");
  if (context.vpmu_global) {
    finding.found = "vpmu=global: dom0 drives the PMU of the whole machine, nothing is to be switched on.";
    return finding;
  }
  if (context.pmu_error == 0) {
    finding.found =
        absl::StrFormat("On: mode %s, features 0x%x.", PmuModeName(context.mode), context.features);
    if (context.mode == PmuMode::kOff) {
      finding.found =
          absl::StrFormat("There, in mode off (features 0x%x); xenprofd turns it on.", context.features);
    }
    return finding;
  }
  if (CauseIsElsewhere(context)) {
    Skip(&finding, context.cause == PmuCause::kWatchdog ? "Off because of Xen's NMI watchdog, see there."
                                                        : "Xen has none for a PVH dom0, see there.");
    return finding;
  }
  const PmuDecision& decision = DecidePmu(PmuStep::kRead, context.pmu_error, context.cause);
  finding.severity = Severity::kError;
  finding.found = decision.found;
  if (context.pmu_error == EOPNOTSUPP && context.pmu_host.command_line_known) {
    absl::StrAppend(&finding.found, " Xen's command line: ",
                    context.pmu_host.command_line.empty() ? "(empty)" : context.pmu_host.command_line);
  }
  finding.why = "Without the vPMU only dom0 is seen, by a software clock: neither Xen nor guests.";
  finding.advice = decision.xen_options[0] == '\0' ? decision.remedy : "";
  AddXenOptionFix(context, decision.xen_options, &finding);
  return finding;
}

Finding CheckModeAll(const Context& context, const StackProbe& probe) {
  Finding finding = MakeFinding("mode_all", "vPMU mode all");
  if (context.vpmu_global) {
    finding.found = "vpmu=global sees the whole machine.";
    return finding;
  }
  if (!context.vpmu_readable()) {
    Skip(&finding, "The vPMU is not to be had.");
    return finding;
  }
  if (context.mode == PmuMode::kAll) {
    finding.found = "In force: dom0 sees the whole machine.";
    return finding;
  }
  const bool blocked = probe.done && probe.error == EBUSY;
  const std::string guests = absl::StrJoin(context.pmu_host.guests, ", ");
  if (!blocked && context.pmu_host.guests.empty()) {
    if (context.in.hypervisor == nullptr) {
      Skip(&finding, "Which guests run is not known; with none, mode all can be reached.");
      return finding;
    }
    finding.found = "Can be reached: no guest runs.";
    if (context.mode != PmuMode::kOff) {
      finding.severity = Severity::kInfo;
      finding.advice = "Guests started before xenprofd will block it; the boot unit sets it before them.";
      finding.commands = {kBootUnit};
      finding.why = "Mode all is what shows guests, and Xen working for them.";
    }
    return finding;
  }
  finding.severity = Severity::kWarning;
  finding.found =
      blocked
          ? absl::StrCat("Cannot be reached now: a guest holds a vPMU",
                         guests.empty() ? "." : absl::StrCat("; running: ", guests, "."))
          : absl::StrCat(
                "Will be refused if one of the running guests was started in mode self or hv: ", guests, ".");
  if (context.mode == PmuMode::kOff && !blocked) {
    finding.severity = Severity::kInfo;
    finding.found = absl::StrCat("Guests run (", guests, "); those started in mode off do not block it.");
  }
  finding.why =
      "A guest started in mode self or hv holds a vPMU as long as it lives, and Xen then refuses `all`. Mode "
      "hv is used "
      "instead: Xen working for dom0 is seen, guests and Xen working for them are not.";
  finding.advice =
      "From the next boot on, guests have no vPMU of their own (no perf in guests). Or shut those guests "
      "down "
      "and restart xenprofd.";
  finding.commands = {kBootUnit, "reboot"};
  return finding;
}

Finding CheckXenStacks(const Context& context, const StackProbe& probe) {
  Finding finding = MakeFinding("xen_stacks", "Hypervisor stacks of Xen");
  if (context.vpmu_global) {
    Skip(&finding, "vpmu=global: only samples will tell.");
    return finding;
  }
  if (!context.vpmu_readable()) {
    Skip(&finding, "The vPMU is not to be had.");
    return finding;
  }
  if (!probe.done) {
    finding.severity = Severity::kInfo;
    finding.found = "Not known: that takes a trial write to pmu_features, which was not allowed.";
    return finding;
  }
  if (!probe.restored) {
    finding.severity = Severity::kError;
    finding.found = "Xen took bit 3 of pmu_features for a trial, but not the old value afterwards.";
    finding.why = "The trial was to leave everything as it was.";
    finding.commands = {
        absl::StrFormat("printf '0x%x\\n' > /sys/hypervisor/pmu/pmu_features", context.features)};
    return finding;
  }
  if (probe.error == 0) {
    finding.found = probe.already_on
                        ? "On (pmu_features has bit 3)."
                        : "Supported (bit 3 of pmu_features was accepted; the old value is back).";
    return finding;
  }
  const PmuDecision& decision = DecidePmu(PmuStep::kSetFeatures, probe.error, PmuCause::kAny);
  finding.severity = Severity::kWarning;
  finding.found = probe.error == EACCES || probe.error == EPERM || probe.error == EROFS
                      ? absl::StrCat("Not known: ", decision.found)
                      : decision.found;
  finding.why =
      "Without stacks a sample in Xen names the function that ran, but not which hypercall led to it.";
  finding.advice = decision.remedy;
  if (probe.error == EBUSY) finding.commands = {kBootUnit, "reboot"};
  return finding;
}

Finding CheckKernelStacks(const Context& context, const StackProbe& probe) {
  Finding finding = MakeFinding("kernel_stacks", "Hypervisor stacks in dom0's kernel");
  const std::optional<bool> has = KernelHasHypervisorCallchain(context.in.root);
  if (!has.has_value()) {
    Skip(&finding, "/proc/kallsyms could not be read.");
    return finding;
  }
  if (*has) {
    finding.found = "Supported (kallsyms has xen_hypervisor_callchain).";
    return finding;
  }
  // Without the other half nothing is lost by this one.
  const bool xen_has = probe.done && (probe.error == 0 || probe.error == EBUSY);
  finding.severity = xen_has ? Severity::kWarning : Severity::kInfo;
  finding.found = "Not supported: kallsyms has no xen_hypervisor_callchain.";
  finding.why = xen_has ? "Xen delivers its stacks, but this kernel leaves them out of the samples."
                        : "Needed as well, once Xen delivers stacks.";
  finding.advice = "Boot a dom0 kernel with the hypervisor-stack patches.";
  return finding;
}

Finding CheckFramePointers(const Context& context, const StackProbe& probe) {
  Finding finding = MakeFinding("frame_pointers", "Frame pointers in Xen");
  std::string config, source;
  if (context.in.hypervisor != nullptr) {
    if (absl::StatusOr<std::string> text = context.in.hypervisor->BuildConfig(); text.ok()) {
      config = *std::move(text);
      source = "hypfs /buildinfo/config";
    }
  }
  if (config.empty()) {
    // By version only, so a hint and no more.
    for (const std::string& name : ListDirectory(RootedPath(context.in.root, "/boot"))) {
      if (!absl::StartsWith(name, "xen-") || !absl::EndsWith(name, ".config")) continue;
      const std::string version = name.substr(4, name.size() - 4 - 7);
      const size_t dash = version.find('-');
      if (!absl::StartsWith(context.host.version, version.substr(0, dash))) continue;
      config = ReadSmallFile(RootedPath(context.in.root, "/boot/" + name)).value_or("");
      source = "/boot/" + name;
    }
  }
  if (config.empty()) {
    Skip(&finding, "How this Xen was built is not known (no hypfs, no /boot/xen-*.config).");
    return finding;
  }
  if (absl::StrContains(config, "CONFIG_FRAME_POINTER=y")) {
    finding.found = absl::StrCat("Built with them (", source, ").");
    return finding;
  }
  const bool xen_has = probe.done && (probe.error == 0 || probe.error == EBUSY);
  finding.severity = xen_has ? Severity::kWarning : Severity::kInfo;
  finding.found = absl::StrCat("Built without them (", source, " has no CONFIG_FRAME_POINTER=y).");
  finding.why = xen_has
                    ? "Xen walks its stacks by frame pointers: without them they end after the first frame."
                    : "Needed as well, once Xen delivers stacks.";
  finding.advice = "Install a Xen built with CONFIG_FRAME_POINTER=y.";
  return finding;
}

}  // namespace xenprof::xen::doctor
