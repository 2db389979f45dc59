#include "daemon/collector.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/clock.h"

namespace xenprof::daemon {
namespace {

using Kind = merge::Incident::Kind;

// Rings of all CPUs together, where the frequency alone would ask for more.
constexpr uint64_t kAllRingsBytes = uint64_t{256} << 20;
constexpr uint64_t kSmallestWantedRing = 128 << 10;
// An event that died is tried again after this time.
constexpr uint64_t kRetryNs = 10 * kSecondNs;
// So many cycles without one sample are a fault: at 1 Hz and 1 GHz a sample takes that many.
constexpr uint64_t kCyclesWithoutSample = 2'000'000'000;

}  // namespace

Collector::Collector(const CollectorOptions& options, merge::Assembler* assembler, EventFd* recorder)
    : options_(options), assembler_(assembler), recorder_(recorder) {}

Collector::~Collector() {
  for (auto& [number, cpu] : cpus_) {
    if (cpu.reader != nullptr) cpu.reader->Stop();
  }
}

absl::StatusOr<std::vector<uint32_t>> Collector::OnlineCpus() const {
  const int fd = ::open(options_.online_file.c_str(), O_RDONLY | O_CLOEXEC);
  std::string text;
  if (fd >= 0) {
    char buffer[4096];
    const ssize_t size = read(fd, buffer, sizeof(buffer));
    if (size > 0) text.assign(buffer, static_cast<size_t>(size));
    close(fd);
  }
  if (text.empty()) {
    return absl::UnavailableError(
        absl::StrCat("cannot read which CPUs are online from ", options_.online_file));
  }
  return perf::ParseCpuList(text);
}

void Collector::Tell(Kind kind, int64_t cpu, uint64_t start_ns, uint64_t end_ns, uint64_t count,
                     std::string text) {
  assembler_->AddIncident({kind, cpu, start_ns, end_ns, count, std::move(text)});
}

absl::Status Collector::Probe(uint32_t cpu) {
  perf::SamplingOptions sampling;
  sampling.frequency_hz = options_.frequency_hz;
  sampling.max_stack = options_.max_stack;
  sampling.event = options_.event == "auto" ? std::string(perf::kCycles) : options_.event;
  sampling.interrupted_ip = options_.timer_on_xen && sampling.event == perf::kCpuClock;
  absl::StatusOr<perf::SamplingPlan> plan = perf::SamplingPlan::Probe(sampling, cpu);
  if (!plan.ok() && options_.event == "auto" && !absl::IsPermissionDenied(plan.status())) {
    notes_.push_back(absl::StrCat("sampling by cpu-clock: ", plan.status().message()));
    sampling.event = std::string(perf::kCpuClock);
    sampling.interrupted_ip = options_.timer_on_xen;
    plan = perf::SamplingPlan::Probe(sampling, cpu);
  }
  if (!plan.ok()) return plan.status();
  plan_ = *std::move(plan);
  for (const std::string& attribute : plan_.refused()) {
    notes_.push_back(absl::StrCat("this kernel does not know the event attribute ", attribute));
  }
  return absl::OkStatus();
}

uint64_t Collector::WantedRingBytes() const {
  if (options_.ring_bytes != 0) return options_.ring_bytes;
  uint64_t bytes = perf::RingBytes(options_.frequency_hz, plan_.options().max_stack);
  while (bytes > kSmallestWantedRing && bytes * std::max<size_t>(cpus_.size(), 1) > kAllRingsBytes)
    bytes /= 2;
  return bytes;
}

absl::Status Collector::Open() {
  absl::StatusOr<std::vector<uint32_t>> online = OnlineCpus();
  if (!online.ok()) return online.status();
  if (online->empty()) return absl::InternalError("no CPU is online, says " + options_.online_file);
  for (uint32_t number : *online) cpus_[number].online = true;
  absl::Status probed = Probe(online->front());
  if (!probed.ok()) return probed;
  ring_bytes_ = WantedRingBytes();
  absl::Status first_error;
  size_t opened = 0;
  for (auto& [number, cpu] : cpus_) {
    if (!cpu.online) continue;
    absl::Status status = OpenCpu(number, &cpu);
    if (status.ok()) {
      ++opened;
    } else {
      notes_.push_back(absl::StrCat("CPU ", number, " is not sampled: ", status.message()));
      if (first_error.ok()) first_error = status;
    }
  }
  if (opened == 0) return first_error;
  open_ = true;
  return absl::OkStatus();
}

absl::Status Collector::OpenCpu(uint32_t number, Cpu* cpu) {
  const auto fail = [&](const absl::Status& status) {
    cpu->event = nullptr;
    cpu->reader = nullptr;
    cpu->problem = std::string(status.message());
    cpu->retry_at_ns = NowNs() + kRetryNs;
    return status;
  };
  absl::StatusOr<std::unique_ptr<perf::CpuEvent>> event = perf::CpuEvent::Open(number, plan_, ring_bytes_);
  if (!event.ok()) return fail(event.status());
  cpu->event = *std::move(event);
  if (cpu->event->ring_bytes() < ring_bytes_ && !shrink_told_) {
    shrink_told_ = true;
    notes_.push_back(
        absl::StrCat("rings are ", cpu->event->ring_bytes() >> 10, " KiB instead of ", ring_bytes_ >> 10,
                     ": kernel.perf_event_mlock_kb or the limit of locked memory allows no more; samples "
                     "may be lost"));
    ring_bytes_ = cpu->event->ring_bytes();
  }
  ReaderOptions reader;
  reader.cpu = number;
  reader.layout = plan_.layout();
  reader.merge = options_.merge;
  reader.merge.max_stack = plan_.options().max_stack;
  reader.nice = options_.reader_nice;
  cpu->reader = std::make_unique<CpuReader>(cpu->event->ring(), cpu->event->fd(), reader, recorder_);
  cpu->reader->SetShedding(shedding_);
  absl::Status started = cpu->reader->Start();
  if (!started.ok()) return fail(started);
  cpu->open_since_ns = NowNs();
  absl::Status enabled = cpu->event->Enable();
  if (!enabled.ok()) {
    cpu->reader->Stop();
    return fail(enabled);
  }
  cpu->problem.clear();
  cpu->sideband_shed_told = 0;
  cpu->checked_samples = 0;
  cpu->has_baseline = false;
  return absl::OkStatus();
}

void Collector::CloseCpu(uint32_t number, Cpu* cpu) {
  if (cpu->reader == nullptr) return;
  (void)cpu->event->Disable();  // an event whose CPU is gone counts no more anyway
  cpu->reader->Stop();
  Collect(number, cpu);
  merge::CpuBatch rest = cpu->reader->TakeRest();
  if (!rest.empty()) assembler_->AddBatch(std::move(rest));
  const ReaderCounters& counters = cpu->reader->counters();
  const uint64_t now_ns = NowNs();
  uint64_t lost = counters.lost.load();
  // Losses that no later record had the room to tell.
  absl::StatusOr<perf::CpuEvent::Counts> counts = cpu->event->Read();
  if (counts.ok() && counts->lost > lost) {
    Tell(Kind::kLost, number, now_ns, now_ns, counts->lost - lost, "");
    lost = counts->lost;
  }
  cpu->samples += counters.samples.load();
  cpu->lost += lost;
  cpu->shed += counters.shed.load();
  cpu->throttled_ns += counters.throttled_ns.load();
  cpu->last_sample_ns = std::max(cpu->last_sample_ns, counters.last_sample_ns.load());
  cpu->spans.emplace_back(cpu->open_since_ns, now_ns);
  cpu->closed_at_ns = now_ns;
  cpu->reader = nullptr;
  cpu->event = nullptr;
}

void Collector::Close() {
  for (auto& [number, cpu] : cpus_) {
    if (cpu.event != nullptr) (void)cpu.event->Disable();
  }
  for (auto& [number, cpu] : cpus_) CloseCpu(number, &cpu);
  open_ = false;
}

void Collector::Reopen(uint32_t number, Cpu* cpu, const std::string& reason) {
  CloseCpu(number, cpu);
  const uint64_t from_ns = cpu->closed_at_ns;
  if (!OpenCpu(number, cpu).ok()) return;
  Tell(Kind::kGap, number, from_ns, cpu->open_since_ns, 0, reason);
  gap_ = true;
}

void Collector::Collect(uint32_t number, Cpu* cpu) {
  if (cpu->reader == nullptr) return;
  merge::CpuBatch batch;
  while (cpu->reader->TakeBatch(&batch)) {
    assembler_->AddBatch(std::move(batch));
    cpu->reader->Recycle(assembler_->TakeRecycled());
  }
  const uint64_t shed = cpu->reader->counters().sideband_shed.load(std::memory_order_relaxed);
  if (shed > cpu->sideband_shed_told) {
    const uint64_t now_ns = NowNs();
    Tell(Kind::kSidebandLost, number, now_ns, now_ns, shed - cpu->sideband_shed_told,
         "the queue to the recorder was full");
    cpu->sideband_shed_told = shed;
  }
}

void Collector::Collect() {
  for (auto& [number, cpu] : cpus_) Collect(number, &cpu);
}

bool Collector::RequestDrain(uint64_t until_ns) {
  bool all = true;
  for (auto& [number, cpu] : cpus_) {
    if (cpu.reader == nullptr) continue;
    if (cpu.reader->counters().drained_until_ns.load(std::memory_order_acquire) >= until_ns) continue;
    cpu.reader->RequestDrain();
    all = false;
  }
  return all;
}

uint64_t Collector::DrainedUntilNs() const {
  uint64_t until_ns = ~uint64_t{0};
  bool any = false;
  for (const auto& [number, cpu] : cpus_) {
    if (cpu.reader == nullptr) continue;
    any = true;
    until_ns = std::min(until_ns, cpu.reader->counters().drained_until_ns.load(std::memory_order_acquire));
  }
  return any ? until_ns : 0;
}

void Collector::CheckCpus() {
  if (!open_) return;
  absl::StatusOr<std::vector<uint32_t>> online = OnlineCpus();
  // As it was: it is asked again in a second. Some CPU is running this.
  if (!online.ok() || online->empty()) return;
  const uint64_t now_ns = NowNs();
  for (uint32_t number : *online) {
    auto [entry, added] = cpus_.try_emplace(number);
    Cpu& cpu = entry->second;
    if (cpu.online && !added) continue;
    cpu.online = true;
    const absl::Status opened = OpenCpu(number, &cpu);
    Tell(Kind::kCpuOnline, number, now_ns, now_ns, 0, opened.ok() ? "" : std::string(opened.message()));
    if (opened.ok() && cpu.closed_at_ns != 0) {
      Tell(Kind::kGap, number, cpu.closed_at_ns, cpu.open_since_ns, 0, "the CPU was offline");
    }
  }
  for (auto& [number, cpu] : cpus_) {
    if (cpu.online && !std::binary_search(online->begin(), online->end(), number)) {
      cpu.online = false;
      cpu.problem.clear();
      Tell(Kind::kCpuOffline, number, now_ns, now_ns, 0, "");
      CloseCpu(number, &cpu);
    } else if (cpu.online && cpu.reader != nullptr &&
               cpu.reader->counters().hung_up.load(std::memory_order_acquire)) {
      if (now_ns < cpu.retry_at_ns) continue;
      cpu.retry_at_ns = now_ns + kRetryNs;
      Reopen(number, &cpu, "the kernel had ended the event; it was opened again");
    } else if (cpu.online && cpu.reader == nullptr && now_ns >= cpu.retry_at_ns) {
      const uint64_t from_ns = cpu.closed_at_ns;
      if (OpenCpu(number, &cpu).ok() && from_ns != 0) {
        Tell(Kind::kGap, number, from_ns, cpu.open_since_ns, 0, "the event could not be opened for a while");
        gap_ = true;
      }
    }
  }
}

void Collector::CheckSilence() {
  const uint64_t now_ns = NowNs();
  const bool clock = plan_.options().event == perf::kCpuClock;
  for (auto& [number, cpu] : cpus_) {
    if (cpu.reader == nullptr || shedding_) continue;
    const uint64_t samples = cpu.reader->counters().samples.load(std::memory_order_relaxed);
    if (samples != cpu.checked_samples) {
      cpu.checked_samples = samples;
      cpu.has_baseline = false;
      if (samples > 0) cpu.problem.clear();
      continue;
    }
    absl::StatusOr<perf::CpuEvent::Counts> counts = cpu.event->Read();
    if (counts.ok() && !cpu.has_baseline) {
      cpu.has_baseline = true;
      cpu.baseline_value = counts->value;
      cpu.silent_since_ns = now_ns;
      continue;
    }
    // The reader itself has run on this CPU meanwhile: an event that has counted nothing at all does not
    // count.
    if (!counts.ok() || counts->value == cpu.baseline_value) {
      cpu.problem =
          counts.ok() ? "the event does not count on this CPU" : std::string(counts.status().message());
      Tell(Kind::kSilentCpu, number, cpu.silent_since_ns, now_ns, 0, cpu.problem);
      if (now_ns >= cpu.retry_at_ns) {
        cpu.retry_at_ns = now_ns + kRetryNs;
        const std::string problem = cpu.problem;
        Reopen(number, &cpu, absl::StrCat(problem, "; it was opened again"));
        cpu.problem = problem;  // until a sample shows better
      } else {
        cpu.silent_since_ns = now_ns;
      }
      continue;
    }
    // A PMU counts nothing while its CPU is idle, so few cycles without a sample are no fault.
    const uint64_t counted = counts->value - cpu.baseline_value;
    const uint64_t fault = clock ? 3 * kSecondNs / std::min(options_.frequency_hz, 3u) : kCyclesWithoutSample;
    if (counted < fault) continue;
    cpu.problem = "the event counts, but no sample comes from this CPU";
    Tell(Kind::kSilentCpu, number, cpu.silent_since_ns, now_ns, 0, cpu.problem);
    cpu.baseline_value = counts->value;
    cpu.silent_since_ns = now_ns;
  }
}

std::string Collector::CheckDelivery() {
  if (!open_ || plan_.options().event != perf::kCycles) return "";
  std::vector<uint32_t> silent;
  size_t readers = 0;
  for (const auto& [number, cpu] : cpus_) {
    if (cpu.reader == nullptr) continue;
    ++readers;
    if (cpu.reader->counters().samples.load(std::memory_order_relaxed) == 0) silent.push_back(number);
  }
  if (silent.empty() || silent.size() < readers) return "";
  if (options_.event != "auto") return "the PMU opened, but not one sample has come from it";
  options_.event = std::string(perf::kCpuClock);
  absl::Status probed = Probe(silent.front());
  if (!probed.ok()) return absl::StrCat("the PMU gives no samples, and cpu-clock: ", probed.message());
  ring_bytes_ = WantedRingBytes();
  for (auto& [number, cpu] : cpus_) {
    if (cpu.reader != nullptr)
      Reopen(number, &cpu, "the PMU gave no samples; sampling by cpu-clock from here on");
  }
  return "the PMU opened, but not one sample came from it: sampling by cpu-clock";
}

absl::StatusOr<uint32_t> Collector::SetFrequency(uint32_t hz) {
  const uint32_t previous = options_.frequency_hz;
  if (hz == previous) return previous;
  perf::SamplingOptions sampling = plan_.options();
  sampling.frequency_hz = hz;
  // Checks the system's limit, and that it opens at all, before anything is touched.
  absl::StatusOr<perf::SamplingPlan> plan = perf::SamplingPlan::Probe(sampling, cpus_.begin()->first);
  if (!plan.ok()) return plan.status();
  options_.frequency_hz = hz;
  plan_ = *std::move(plan);
  const uint64_t wanted = WantedRingBytes();
  const bool reopen = wanted > ring_bytes_ && !shrink_told_;
  if (reopen) ring_bytes_ = wanted;
  for (auto& [number, cpu] : cpus_) {
    if (cpu.event == nullptr) continue;
    if (!reopen && cpu.event->SetFrequency(hz).ok()) continue;
    Reopen(number, &cpu, "a larger ring for a higher frequency");
  }
  const uint64_t now_ns = NowNs();
  Tell(Kind::kFrequency, -1, now_ns, now_ns, hz, "");
  return previous;
}

void Collector::SetShedding(bool shedding) {
  shedding_ = shedding;
  for (auto& [number, cpu] : cpus_) {
    if (cpu.reader != nullptr) cpu.reader->SetShedding(shedding);
  }
}

void Collector::SetMergeOptions(const merge::MergeOptions& options) {
  options_.merge = options;
  merge::MergeOptions in_force = options;
  in_force.max_stack = plan_.options().max_stack;
  for (auto& [number, cpu] : cpus_) {
    if (cpu.reader != nullptr) cpu.reader->SetMergeOptions(in_force);
  }
}

uint64_t Collector::OpenNs(uint32_t number, uint64_t start_ns, uint64_t end_ns) {
  auto entry = cpus_.find(number);
  if (entry == cpus_.end()) return 0;
  Cpu& cpu = entry->second;
  uint64_t open_ns = 0;
  const auto add = [&](uint64_t from, uint64_t to) {
    from = std::max(from, start_ns);
    to = std::min(to, end_ns);
    if (from < to) open_ns += to - from;
  };
  for (const auto& [from, to] : cpu.spans) add(from, to);
  if (cpu.reader != nullptr) add(cpu.open_since_ns, end_ns);
  std::erase_if(cpu.spans, [&](const auto& span) { return span.second <= end_ns; });
  return open_ns;
}

std::vector<Collector::CpuState> Collector::States() const {
  std::vector<CpuState> states;
  for (const auto& [number, cpu] : cpus_) {
    CpuState state{number,           cpu.online, cpu.samples,        cpu.lost,
                   cpu.throttled_ns, cpu.shed,   cpu.last_sample_ns, cpu.problem};
    if (cpu.reader != nullptr) {
      const ReaderCounters& counters = cpu.reader->counters();
      state.samples += counters.samples.load(std::memory_order_relaxed);
      state.lost += counters.lost.load(std::memory_order_relaxed);
      state.throttled_ns += counters.throttled_ns.load(std::memory_order_relaxed);
      state.shed += counters.shed.load(std::memory_order_relaxed);
      state.last_sample_ns =
          std::max(state.last_sample_ns, counters.last_sample_ns.load(std::memory_order_relaxed));
    }
    states.push_back(std::move(state));
  }
  return states;
}

std::vector<Collector::Evidence> Collector::Evidences() const {
  std::vector<Evidence> all;
  for (const auto& [number, cpu] : cpus_) {
    if (cpu.reader == nullptr) continue;
    const ReaderCounters& counters = cpu.reader->counters();
    all.push_back({number, counters.samples.load(std::memory_order_relaxed),
                   counters.hypervisor_samples.load(std::memory_order_relaxed),
                   counters.guest_samples.load(std::memory_order_relaxed),
                   counters.most_hypervisor_frames.load(std::memory_order_relaxed)});
  }
  return all;
}

}  // namespace xenprof::daemon
