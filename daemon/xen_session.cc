#include "daemon/xen_session.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "xenprof/base/types.h"
#include "xenprof/xen/facts_proto.h"
#include "xenprof/xen/host.h"

namespace xenprof::daemon {
namespace {

// Xen's own text and what livepatches add to it, for every version (xen-facts, "Telling the frames apart").
constexpr uint64_t kXenTextStart = 0xffff82d040000000;
constexpr uint64_t kXenTextEnd = 0xffff82d0c0000000;

xen::VpmuOptions VpmuOptionsOf(const Config& config) {
  xen::VpmuOptions options;
  options.state_dir = config.state_dir;
  return options;
}

xen::PmuMode MaxMode(const Config& config) {
  // "keep" is no mode of Xen: kOff means to change nothing here.
  return xen::ParsePmuMode(config.vpmu).value_or(xen::PmuMode::kOff);
}

}  // namespace

XenSession::XenSession(const Config& config) : config_(config) {}
XenSession::~XenSession() = default;

void XenSession::Prepare() {
  host_ = xen::DetectXenHost();
  if (!host_.on_xen) return;
  absl::StatusOr<std::unique_ptr<xen::Hypervisor>> hypervisor = xen::OpenHypervisor();
  if (hypervisor.ok()) {
    hypervisor_ = *std::move(hypervisor);
  } else {
    open_problem_ = std::string(hypervisor.status().message());
    notes_.emplace_back(true, absl::StrCat("Xen cannot be asked about itself: ", open_problem_));
  }
  collected_ = xen::CollectFacts(host_, hypervisor_.get(), open_problem_);
  facts_ = xen::ToProto(collected_);
  vpmu_ = std::make_unique<xen::VpmuControl>(VpmuOptionsOf(config_));
  xen::VpmuRequest request;
  request.max_mode = MaxMode(config_);
  request.host = xen::CollectPmuHostFacts(host_, hypervisor_.get());
  outcome_ = vpmu_->Enable(request);
  for (const xen::VpmuNote& note : outcome_.notes) notes_.emplace_back(note.warning, note.text);
}

void XenSession::EventsOpened(const std::string& event, const std::string& problem) {
  xen::ModeInputs inputs;
  inputs.host = host_;
  inputs.vpmu = outcome_;
  if (host_.on_xen) inputs.kernel_has_callchain = xen::KernelHasHypervisorCallchain();
  inputs.pmu_event_usable = event == perf::kCycles;
  inputs.pmu_event_problem = problem;
  confirmer_ = std::make_unique<xen::ModeConfirmer>(xen::DecideMode(inputs));
  told_.clear();
  // perf_guest_state() of a PV dom0 reads the page that only a PMU interrupt fills.
  if (host_.on_xen && event == perf::kCpuClock && outcome_.usable) {
    notes_.emplace_back(
        true,
        "Xen's vPMU is on but gives no samples: dom0's kernel then takes a timer's samples for a "
        "guest's and walks no stack, so they name the function that ran and not its callers. "
        "Without vpmu= on Xen's command line they would have callers.");
  }
}

void XenSession::Restore() {
  if (vpmu_ == nullptr) return;
  absl::StatusOr<std::vector<xen::VpmuNote>> restored =
      vpmu_->Restore(xen::CollectPmuHostFacts(host_, hypervisor_.get()));
  if (!restored.ok()) {
    notes_.emplace_back(true, absl::StrCat("the vPMU could not be put back: ", restored.status().message()));
    return;
  }
  for (const xen::VpmuNote& note : *restored) notes_.emplace_back(note.warning, note.text);
}

proto::Mode XenSession::mode() const {
  return confirmer_ == nullptr ? proto::Mode() : xen::ToProto(confirmer_->current());
}

merge::MergeOptions XenSession::merge_options() const {
  merge::MergeOptions options;
  const ModeKind kind = confirmer_ == nullptr ? ModeKind::kPlainLinux : confirmer_->current().kind;
  options.hypervisor_stacks = kind == ModeKind::kXenStacks;
  options.software_clock_on_xen = kind == ModeKind::kDom0Only;
  options.dom0_counted_only = outcome_.usable && (outcome_.name == "hv" || outcome_.name == "self");
  options.pv_dom0 = host_.on_xen && host_.guest_type != "PVH" && host_.guest_type != "HVM" &&
                    (kind == ModeKind::kXenStacks || kind == ModeKind::kXenLeafOnly);
  options.xen_idle = idle_ranges_;
  return options;
}

merge::TextRange XenSession::hypervisor_text() const {
  merge::TextRange range;
  range.name = "[xen]";
  range.start = kXenTextStart;
  range.end = kXenTextEnd;
  range.build_id = collected_.build_id;
  return range;
}

bool XenSession::CheckMode(const std::vector<Collector::Evidence>& evidences, uint64_t now_ns) {
  if (confirmer_ == nullptr || !host_.on_xen) return false;
  for (const Collector::Evidence& evidence : evidences) {
    auto before = std::find_if(told_.begin(), told_.end(),
                               [&](const Collector::Evidence& other) { return other.cpu == evidence.cpu; });
    if (before == told_.end()) {
      confirmer_->CpuOnline(evidence.cpu, now_ns);
      told_.push_back({evidence.cpu});
      before = told_.end() - 1;
    }
    // A CPU that went and came back counts from 0 again.
    if (evidence.samples < before->samples) *before = {evidence.cpu};
    if (evidence.samples == before->samples) continue;
    confirmer_->Add(
        evidence.cpu,
        {evidence.samples - before->samples, evidence.hypervisor_samples - before->hypervisor_samples,
         evidence.most_hypervisor_frames},
        now_ns);
    *before = evidence;
  }
  const std::optional<xen::ModeDecision> changed = confirmer_->Evaluate();
  if (changed.has_value()) {
    notes_.emplace_back(
        true, absl::StrCat("collection mode is now \"", ModeName(changed->kind), "\": ", changed->reason));
  }
  return changed.has_value();
}

bool XenSession::CheckFacts(bool due) {
  if (!host_.on_xen || hypervisor_ == nullptr) return false;
  // Without xenstore there are no events: then only `due` counts.
  if (!due && !(hypervisor_->DomainWatchFd().ok() && hypervisor_->TakeDomainEvents().value_or(false)))
    return false;
  xen::HypervisorFacts now = xen::CollectFacts(host_, hypervisor_.get(), open_problem_);
  if (now == collected_) return false;
  collected_ = std::move(now);
  facts_ = xen::ToProto(collected_);
  return true;
}

absl::StatusOr<std::string> RestoreVpmu(const Config& config) {
  return xen::RestoreSaved(VpmuOptionsOf(config));
}

std::string SetVpmuAtBoot(const Config& config) {
  const xen::XenHost host = xen::DetectXenHost();
  if (!host.on_xen) return "there is no Xen below this kernel: nothing to set";
  absl::StatusOr<std::unique_ptr<xen::Hypervisor>> hypervisor = xen::OpenHypervisor();
  xen::VpmuRequest request;
  request.max_mode = MaxMode(config);
  request.host = xen::CollectPmuHostFacts(host, hypervisor.ok() ? hypervisor->get() : nullptr);
  const xen::VpmuOutcome outcome = xen::EnableAtBoot(VpmuOptionsOf(config), request);
  std::string text =
      outcome.usable ? absl::StrCat("vPMU mode ", outcome.name, ", features 0x", absl::Hex(outcome.features))
                     : outcome.no_pmu_reason;
  for (const xen::VpmuNote& note : outcome.notes) absl::StrAppend(&text, "\n", note.text);
  return text;
}

}  // namespace xenprof::daemon
