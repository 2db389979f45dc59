#include "xenprof/xen/mode.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace xenprof::xen {
namespace {

// How far the vPMU's mode lets dom0 see.
std::string Reach(const VpmuOutcome& vpmu) {
  if (vpmu.name == "hv") return " vPMU mode hv: Xen is seen only while it works for dom0, guests not at all.";
  return "";
}

}  // namespace

ModeDecision DecideMode(const ModeInputs& in) {
  ModeDecision mode;
  if (!in.host.on_xen) {
    mode.kind = ModeKind::kPlainLinux;
    mode.reason = "Not running on Xen.";
    return mode;
  }
  if (in.host.dom0.has_value() && !*in.host.dom0) {
    mode.kind = ModeKind::kPlainLinux;
    mode.reason = "Running in a Xen guest, not in dom0: Xen itself cannot be sampled from here.";
    return mode;
  }
  if (!in.vpmu.usable) {
    mode.kind = ModeKind::kDom0Only;
    mode.reason = in.vpmu.no_pmu_reason.empty() ? "Xen gives dom0 no PMU." : in.vpmu.no_pmu_reason;
    return mode;
  }
  mode.vpmu = in.vpmu.name;
  if (!in.pmu_event_usable) {
    mode.kind = ModeKind::kDom0Only;
    mode.reason =
        absl::StrCat("Xen's vPMU is in mode ", in.vpmu.name, ", but dom0's kernel has no usable PMU event",
                     in.pmu_event_problem.empty() ? "" : ": ", in.pmu_event_problem, ".");
    return mode;
  }
  if (in.vpmu.name == "self") {
    mode.kind = ModeKind::kDom0Only;
    mode.reason = "vPMU mode self: the counters run only while dom0 does.";
    return mode;
  }
  if (in.vpmu.hv_stacks_unknown) {
    mode.kind = in.kernel_has_callchain.value_or(false) ? ModeKind::kXenStacks : ModeKind::kXenLeafOnly;
    mode.reason = "vpmu=global: whether Xen delivers its stacks, only samples can tell.";
    return mode;
  }
  if (!in.vpmu.hv_stacks) {
    mode.kind = ModeKind::kXenLeafOnly;
    mode.reason = in.vpmu.no_stacks_reason.empty() ? "Xen's stack feature (pmu_features bit 3) is not on."
                                                   : in.vpmu.no_stacks_reason;
    return mode;
  }
  if (in.kernel_has_callchain.has_value() && !*in.kernel_has_callchain) {
    mode.kind = ModeKind::kXenLeafOnly;
    mode.reason = absl::StrCat(
        "Xen delivers its stacks, but dom0's kernel does not read them: it has no xen_hypervisor_callchain.",
        Reach(in.vpmu));
    return mode;
  }
  mode.kind = ModeKind::kXenStacks;
  mode.reason = absl::StrCat(in.kernel_has_callchain.has_value()
                                 ? "Xen's stack feature is on and dom0's kernel reads its stacks."
                                 : "Xen's stack feature is on; whether dom0's kernel reads its stacks could "
                                   "not be seen in kallsyms.",
                             Reach(in.vpmu));
  return mode;
}

ModeConfirmer::ModeConfirmer(ModeDecision expected, const Options& options)
    : options_(options), current_(std::move(expected)) {}

void ModeConfirmer::CpuOnline(uint32_t cpu, uint64_t now_ns) {
  Cpu& entry = cpus_[cpu];
  entry = Cpu();
  entry.watched_since_ns = now_ns;
  entry.last_sample_ns = now_ns;
}

void ModeConfirmer::CpuOffline(uint32_t cpu) { cpus_.erase(cpu); }

void ModeConfirmer::Add(uint32_t cpu, const Evidence& evidence, uint64_t now_ns) {
  samples_ += evidence.samples;
  xen_samples_ += evidence.xen_samples;
  max_xen_frames_ = std::max(max_xen_frames_, evidence.max_xen_frames);
  const auto found = cpus_.find(cpu);
  if (found == cpus_.end() || evidence.samples == 0) return;
  found->second.samples += evidence.samples;
  found->second.last_sample_ns = std::max(found->second.last_sample_ns, now_ns);
}

std::optional<ModeDecision> ModeConfirmer::Evaluate() {
  const ModeKind before = current_.kind;
  switch (before) {
    case ModeKind::kXenStacks:
      if (max_xen_frames_ >= 2) {
        confirmed_ = true;
      } else if (xen_samples_ >= options_.xen_samples_needed) {
        current_.kind = ModeKind::kXenLeafOnly;
        current_.reason = absl::StrCat("Stacks of Xen were expected, but none of ", xen_samples_,
                                       " samples in Xen had more than one frame: this Xen was built without "
                                       "frame pointers, or its stacks do not "
                                       "reach dom0's kernel.");
        confirmed_ = true;
      }
      break;
    case ModeKind::kXenLeafOnly:
      if (max_xen_frames_ >= 2) {
        current_.kind = ModeKind::kXenStacks;
        current_.reason = absl::StrCat("Samples carry Xen's stacks (up to ", max_xen_frames_,
                                       " frames), though the host did not look as if they would.");
        confirmed_ = true;
      } else if (xen_samples_ > 0) {
        confirmed_ = true;
      }
      break;
    case ModeKind::kDom0Only:
    case ModeKind::kPlainLinux:
    case ModeKind::kUnspecified:
      if (max_xen_frames_ >= 2) {
        current_.kind = ModeKind::kXenStacks;
        current_.reason = "Samples carry Xen's stacks, though no PMU of Xen was expected.";
      } else if (xen_samples_ > 0) {
        current_.kind = ModeKind::kXenLeafOnly;
        current_.reason = "Samples lie in Xen, though no PMU of Xen was expected.";
      }
      if (samples_ > 0) confirmed_ = true;
      break;
  }
  if (current_.kind == before) return std::nullopt;
  return current_;
}

std::vector<ModeConfirmer::SilentCpu> ModeConfirmer::SilentCpus(uint64_t now_ns) const {
  std::vector<SilentCpu> silent;
  for (const auto& [cpu, entry] : cpus_) {
    if (now_ns < entry.last_sample_ns || now_ns - entry.last_sample_ns < options_.silent_after_ns) continue;
    SilentCpu found;
    found.cpu = cpu;
    found.since_ns = entry.last_sample_ns;
    found.never = entry.samples == 0;
    found.reason = found.never
                       ? "its event is open but has given no sample yet: the CPU is idle, or the PMU does "
                         "not interrupt there"
                       : "its event gave samples before and has stopped: the CPU is idle, or its event died";
    silent.push_back(found);
  }
  return silent;
}

}  // namespace xenprof::xen
