// What the recorder does beside recording: the budget, the mode, the kernel's modules, the status.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/clock.h"
#include "daemon/host_facts.h"
#include "daemon/log.h"
#include "daemon/recorder.h"
#include "daemon/self_usage.h"

namespace xenprof::daemon {
namespace {

constexpr size_t kMaxNotes = 32;
constexpr int kXenCheckBlocks = 12;

}  // namespace

void Recorder::Say(bool warning, const std::string& text) {
  if (warning) {
    LogWarning(text);
  } else {
    LogInfo(text);
  }
  proto::Note note;
  note.set_severity(warning ? proto::Note::WARNING : proto::Note::INFO);
  note.set_text(text);
  const auto same = [&](const proto::Note& other) { return other.text() == text; };
  if (std::any_of(notes_.begin(), notes_.end(), same)) return;
  // The first ones tell how it began, the last ones how it is.
  if (notes_.size() >= kMaxNotes) notes_.erase(notes_.begin() + kMaxNotes / 2);
  notes_.push_back(std::move(note));
}

void Recorder::TakeNotes() {
  for (const std::string& note : collector_.TakeNotes()) Say(true, note);
  for (const auto& [warning, text] : xen_->TakeNotes()) Say(warning, text);
}

void Recorder::CheckBudget(uint64_t now_ns) {
  if (!collector_.open()) return;
  const SelfUsage usage = ReadSelfUsage();
  uint32_t online = 0;
  for (const Collector::CpuState& state : collector_.States()) online += state.online ? 1 : 0;
  const uint32_t frequency_hz = collector_.plan().options().frequency_hz;
  const BudgetStep step =
      budget_.Update({now_ns, usage.cpu_ns, usage.anonymous_bytes, std::max(online, 1u), frequency_hz});
  if (step.action == BudgetStep::Action::kNone) return;
  if (!step.reason.empty()) Say(true, step.reason);
  switch (step.action) {
    case BudgetStep::Action::kNone:
      break;
    case BudgetStep::Action::kSealEarly:
      if (writer_ != nullptr && !sealer_->full()) {
        SealChunk(proto::Trailer::ROTATED_SIZE, false, nullptr);
        OpenChunk(block_start_ns_);
      }
      break;
    case BudgetStep::Action::kSetFrequency: {
      const absl::Status status = collector_.SetFrequency(step.frequency_hz).status();
      if (!status.ok()) LogWarning(status.message());
      break;
    }
    case BudgetStep::Action::kShed:
      collector_.SetShedding(true);
      break;
    case BudgetStep::Action::kUnshed:
      collector_.SetShedding(false);
      break;
    case BudgetStep::Action::kStop: {
      collector_.Close();
      const uint64_t end_ns = NowNs();
      assembler_.AddIncident({merge::Incident::Kind::kGap, -1, end_ns, end_ns, 0, step.reason});
      Advance(end_ns);
      stopped_by_budget_ = true;
      WriteBlock(end_ns);
      SealChunk(proto::Trailer::STOPPED, false, nullptr);
      pause_reason_ = step.reason;
      gap_since_ns_ = end_ns;
      break;
    }
  }
}

void Recorder::CheckModules() {
  std::string modules = ModuleFingerprint();
  if (modules == modules_) return;
  modules_ = std::move(modules);
  assembler_.SetKernelText(ReadKernelText().ranges);
  symbolizer_->KernelSymbolsChanged();
}

void Recorder::CheckXen(uint64_t now_ns) {
  if (!xen_->on_xen()) return;
  if (xen_->CheckMode(collector_.Evidences(), now_ns)) {
    collector_.SetMergeOptions(xen_->merge_options());
    if (writer_ != nullptr) writer_->SetMode(xen_->mode());
  }
  const bool due = --xen_check_countdown_ <= 0;
  if (due) xen_check_countdown_ = kXenCheckBlocks;
  if (xen_->CheckFacts(due) && writer_ != nullptr) writer_->SetHypervisorFacts(xen_->facts());
}

proto::Event Recorder::EventFacts() const {
  proto::Event event;
  const perf::SamplingPlan& plan = collector_.plan();
  event.set_name(plan.options().event);
  event.set_frequency_hz(plan.options().frequency_hz);
  event.set_max_stack(plan.options().max_stack);
  for (const std::string& attribute : plan.refused()) event.add_refused_attributes(attribute);
  return event;
}

proto::StatusResponse Recorder::MakeStatus() {
  proto::StatusResponse status;
  status.set_producer(ProducerName());
  status.set_pid(static_cast<uint32_t>(getpid()));
  status.set_uptime_ns(NowNs() - started_ns_);
  *status.mutable_mode() = xen_->mode();
  *status.mutable_event() = EventFacts();
  uint64_t samples = 0, lost = 0, shed = 0;
  for (const Collector::CpuState& state : collector_.States()) {
    proto::StatusResponse::CpuStatus* cpu = status.add_cpus();
    cpu->set_cpu(state.cpu);
    cpu->set_online(state.online);
    cpu->set_samples(state.samples);
    cpu->set_lost(state.lost);
    cpu->set_throttled_ns(state.throttled_ns);
    cpu->set_shed(state.shed);
    cpu->set_last_sample_ns(state.last_sample_ns);
    cpu->set_problem(state.problem);
    samples += state.samples;
    lost += state.lost;
    shed += state.shed;
  }
  samples_.store(samples, std::memory_order_relaxed);
  status.set_samples(samples);
  status.set_lost(lost);
  status.set_shed(shed);
  status.set_chunks_sealed(sealer_->sealed_chunks());
  status.set_bytes_written(written_bytes_ + (writer_ != nullptr ? writer_->bytes() : 0));
  status.set_state_dir(config_.state_dir);
  const SelfUsage usage = ReadSelfUsage();
  status.set_memory_bytes(usage.resident_bytes);
  status.set_cpu_ns(usage.cpu_ns);
  for (const proto::Note& note : notes_) *status.add_notes() = note;
  if (xen_->on_xen()) *status.mutable_hypervisor() = xen_->facts();
  status.set_ring_bytes(collector_.ring_bytes());
  status.set_writing(writer_ != nullptr);
  return status;
}

}  // namespace xenprof::daemon
