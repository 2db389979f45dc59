#include "xenprof/xen/vpmu_decision.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "xenprof/xen/cmdline.h"

namespace xenprof::xen {
namespace {

using A = PmuAction;
using C = PmuCause;
using S = PmuStep;

// clang-format off
constexpr PmuDecision kTable[] = {
    // -- reading ------------------------------------------------------------------------------------------------------
    {S::kRead, 0, C::kAny, A::kProceed, "", "", ""},
    {S::kRead, EOPNOTSUPP, C::kPvhDom0, A::kNoPmu,
     "Dom0 is a PVH guest of Xen, and Xen has a vPMU for a PV dom0 only.",
     "Boot dom0 as PV: take dom0=pvh off Xen's command line and reboot.", "dom0=pv"},
    {S::kRead, EOPNOTSUPP, C::kWatchdog, A::kNoPmu,
     "Xen's NMI watchdog uses the counter that the vPMU needs, so Xen turned the vPMU off.",
     "Turn Xen's watchdog off: watchdog=0 on Xen's command line, then reboot.", "watchdog=0"},
    {S::kRead, EOPNOTSUPP, C::kUnsupportedCpu, A::kNoPmu,
     "Xen's vPMU does not support this processor.",
     "Only another processor, or a Xen that knows this one, helps.", ""},
    {S::kRead, EOPNOTSUPP, C::kGuestsOnly, A::kNoPmu,
     "Xen's command line gives the PMU to guests (vpmu=hvm): dom0 has none.",
     "Use vpmu=global instead on Xen's command line, then reboot.", "vpmu=global"},
    {S::kRead, EOPNOTSUPP, C::kNotEnabled, A::kNoPmu,
     "Xen's vPMU is off: it is off unless Xen's command line turns it on.",
     "Add vpmu=on to Xen's command line, with watchdog=0 beside it, then reboot.", "vpmu=on watchdog=0"},
    {S::kRead, EOPNOTSUPP, C::kAny, A::kNoPmu,
     "Xen has its vPMU off: vpmu=on is missing on Xen's command line, or its NMI watchdog is on, or the processor is not "
     "supported. Xen's command line and log, which would tell, could not be read.",
     "Boot Xen with vpmu=on watchdog=0.", "vpmu=on watchdog=0"},
    {S::kRead, ENOENT, C::kAny, A::kNoPmu,
     "There is no /sys/hypervisor/pmu: this is not dom0, or its kernel was built without CONFIG_XEN_HAVE_VPMU.",
     "Boot a dom0 kernel with CONFIG_XEN_HAVE_VPMU=y.", ""},
    {S::kRead, EACCES, C::kAny, A::kNoPmu,
     "/sys/hypervisor/pmu may be read by root only.", "Run as root.", ""},
    {S::kRead, EPERM, C::kAny, A::kNoPmu,
     "Xen does not let this domain control the PMU (only dom0 may, and an XSM policy can forbid it).",
     "Run in dom0; with XSM, allow it the pmu_ctrl permission.", ""},
    {S::kRead, EPROTO, C::kAny, A::kNoPmu,
     "/sys/hypervisor/pmu holds a value that this version does not know, so it is left alone.", "", ""},
    {S::kRead, kAnyError, C::kAny, A::kNoPmu, "/sys/hypervisor/pmu could not be read.", "", ""},

    // -- features: old | bit 3 ----------------------------------------------------------------------------------------
    {S::kSetFeatures, 0, C::kAny, A::kProceed, "", "", ""},
    {S::kSetFeatures, EINVAL, C::kAny, A::kWithoutStacks,
     "This Xen has no hypervisor stacks (it refuses bit 3 of pmu_features): of Xen only the function that ran is seen.",
     "Install a Xen and a dom0 kernel with the hypervisor-stack patches (vPMU ABI 0.2).", ""},
    // Xen checks for unknown bits first, so EBUSY says that it does know bit 3.
    {S::kSetFeatures, EBUSY, C::kAny, A::kWithoutStacks,
     "This Xen has hypervisor stacks, but they cannot be turned on while a guest holds a vPMU, which every guest does that "
     "was started in mode self or hv.",
     "Let xenprofd-vpmu-boot.service set it before guests start (systemctl enable xenprofd-vpmu-boot.service, then "
     "reboot), or shut those guests down and restart xenprofd.", ""},
    {S::kSetFeatures, EOPNOTSUPP, C::kAny, A::kWithoutStacks, "Xen has its vPMU off.", "", "vpmu=on watchdog=0"},
    {S::kSetFeatures, EPERM, C::kAny, A::kWithoutStacks,
     "Xen does not let this domain control the PMU (only dom0 may, and an XSM policy can forbid it).",
     "Run in dom0; with XSM, allow it the pmu_ctrl permission.", ""},
    {S::kSetFeatures, EACCES, C::kAny, A::kWithoutStacks,
     "Only root may write /sys/hypervisor/pmu/pmu_features.", "Run as root.", ""},
    {S::kSetFeatures, EROFS, C::kAny, A::kWithoutStacks,
     "/sys is mounted read-only here, so pmu_features cannot be written.",
     "Do not set ProtectKernelTunables= for xenprofd.service, and do not run it in a container.", ""},
    {S::kSetFeatures, ENOENT, C::kAny, A::kWithoutStacks,
     "There is no pmu_features file: the dom0 kernel has no support for it.", "", ""},
    {S::kSetFeatures, kAnyError, C::kAny, A::kWithoutStacks, "pmu_features could not be written.", "", ""},

    // -- mode ---------------------------------------------------------------------------------------------------------
    {S::kSetMode, 0, C::kAny, A::kProceed, "", "", ""},
    {S::kSetMode, EBUSY, C::kAny, A::kNextMode,
     "Xen refuses this mode while a guest holds a vPMU, which every guest does that was started in mode self or hv, "
     "whether it uses it or not.",
     "Let xenprofd-vpmu-boot.service set it before guests start (systemctl enable xenprofd-vpmu-boot.service, then "
     "reboot), or shut those guests down and restart xenprofd.", ""},
    {S::kSetMode, EINVAL, C::kAny, A::kNextMode, "This Xen does not know this mode.", "", ""},
    {S::kSetMode, EOPNOTSUPP, C::kAny, A::kNoPmu, "Xen has its vPMU off.", "", "vpmu=on watchdog=0"},
    {S::kSetMode, EPERM, C::kAny, A::kNoPmu,
     "Xen does not let this domain control the PMU (only dom0 may, and an XSM policy can forbid it).",
     "Run in dom0; with XSM, allow it the pmu_ctrl permission.", ""},
    {S::kSetMode, EACCES, C::kAny, A::kNoPmu, "Only root may write /sys/hypervisor/pmu/pmu_mode.", "Run as root.", ""},
    {S::kSetMode, EROFS, C::kAny, A::kNoPmu,
     "/sys is mounted read-only here, so pmu_mode cannot be written.",
     "Do not set ProtectKernelTunables= for xenprofd.service, and do not run it in a container.", ""},
    {S::kSetMode, kAnyError, C::kAny, A::kNextMode, "pmu_mode could not be written.", "", ""},

    // -- putting it back ----------------------------------------------------------------------------------------------
    {S::kRestoreMode, 0, C::kAny, A::kProceed, "", "", ""},
    {S::kRestoreMode, EBUSY, C::kAny, A::kKeepSaved,
     "Xen refuses the old mode while a guest holds a vPMU: one was started since the mode was changed.",
     "The old values stay saved: they are put back when xenprofd next starts or stops after those guests are gone, or by "
     "xenprofd --restore-vpmu.", ""},
    {S::kRestoreMode, kAnyError, C::kAny, A::kKeepSaved,
     "The old mode could not be put back.",
     "The old values stay saved; try again with xenprofd --restore-vpmu.", ""},
    {S::kRestoreFeatures, 0, C::kAny, A::kProceed, "", "", ""},
    {S::kRestoreFeatures, EBUSY, C::kAny, A::kKeepSaved,
     "Xen refuses the old features while a guest holds a vPMU: one was started since they were changed.",
     "The old values stay saved: they are put back when xenprofd next starts or stops after those guests are gone, or by "
     "xenprofd --restore-vpmu.", ""},
    {S::kRestoreFeatures, kAnyError, C::kAny, A::kKeepSaved,
     "The old features could not be put back.",
     "The old values stay saved; try again with xenprofd --restore-vpmu.", ""},
};
// clang-format on

bool LogSaysUnsupported(absl::string_view log) {
  // xen/arch/x86/cpu/vpmu.c, vpmu_intel.c, vpmu_amd.c
  for (absl::string_view text : {"VPMU: Unknown CPU vendor", "VPMU: Unsupported CPU family",
                                 "VPMU: only family 6 is supported", "VPMU: Register bank does not fit"}) {
    if (absl::StrContains(log, text)) return true;
  }
  // "VPMU: PMU version 1 is not supported"; "... is not fully supported" is a mere remark.
  const size_t at = log.find("VPMU: PMU version");
  return at != absl::string_view::npos && absl::StrContains(log.substr(at, 64), "is not supported");
}

}  // namespace

absl::Span<const PmuDecision> PmuDecisionTable() { return kTable; }

const PmuDecision& DecidePmu(PmuStep step, int error, PmuCause cause) {
  const PmuDecision* last = &kTable[0];
  for (const PmuDecision& row : kTable) {
    if (row.step != step) continue;
    last = &row;
    if (row.error != error && row.error != kAnyError) continue;
    if (row.cause == C::kAny || row.cause == cause) return row;
  }
  return *last;  // each step ends with a row for everything
}

PmuCause FindPmuCause(const PmuHostFacts& host) {
  if (host.pvh_dom0) return C::kPvhDom0;
  // The log is what Xen did; the command line only what it was asked.
  if (absl::StrContains(host.console_log, "NMI watchdog is enabled. Turning VPMU off")) return C::kWatchdog;
  if (LogSaysUnsupported(host.console_log)) return C::kUnsupportedCpu;
  if (!host.command_line_known) return C::kAny;
  const XenOptions options = ParseXenCommandLine(host.command_line);
  if (options.vpmu == VpmuOption::kGuests) return C::kGuestsOnly;
  if (options.vpmu == VpmuOption::kOff) return C::kNotEnabled;
  if (options.watchdog) return C::kWatchdog;
  return C::kUnsupportedCpu;  // asked for, no watchdog: only the processor is left
}

std::string ExplainPmuDecision(const PmuDecision& decision, int error, const PmuHostFacts& host) {
  std::string text = decision.found;
  if (decision.error == kAnyError && error > 0) absl::StrAppend(&text, " (", strerror(error), ")");
  if (error == EBUSY && !host.guests.empty()) {
    absl::StrAppend(&text, " Guests running now: ", absl::StrJoin(host.guests, ", "), ".");
  }
  if (decision.remedy[0] != '\0') absl::StrAppend(&text, text.empty() ? "" : " ", decision.remedy);
  return text;
}

}  // namespace xenprof::xen
