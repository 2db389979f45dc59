#include "daemon/cpu_reader.h"

#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/clock.h"

namespace xenprof::daemon {
namespace {

// Merging keeps its scratch in the builder; a reader's frames are shallow.
constexpr size_t kStackBytes = 128 << 10;
// A batch that a burst has grown is not kept for quieter times.
constexpr size_t kLargestRecycledBytes = 256 << 10;

template <typename T>
void Add(std::atomic<T>& counter, T value) {
  // One writer: no locked instruction is needed.
  counter.store(counter.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

size_t HeldBytes(const merge::CpuBatch& batch) {
  return batch.addresses.capacity() * sizeof(uint64_t) + batch.stacks.capacity() * sizeof(merge::RawStack) +
         batch.samples.capacity() * sizeof(merge::RawSample) +
         batch.sideband.capacity() * sizeof(perf::SidebandEvent);
}

}  // namespace

CpuReader::CpuReader(perf::Ring* ring, int ring_fd, const ReaderOptions& options, EventFd* recorder)
    : ring_(ring),
      ring_fd_(ring_fd),
      options_(options),
      recorder_(recorder),
      builder_(options.cpu, options.merge) {}

CpuReader::~CpuReader() { Stop(); }

absl::Status CpuReader::Start() {
  if (!wake_.valid()) {
    return absl::ResourceExhaustedError(absl::StrCat("no descriptor left for the reader of CPU ",
                                                     options_.cpu,
                                                     ": raise the limit (ulimit -n, LimitNOFILE=)"));
  }
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  const int error = pthread_create(&thread_, &attributes, &CpuReader::Main, this);
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no thread for the reader of CPU ", options_.cpu, ": ", strerror(error)));
  }
  running_ = true;
  return absl::OkStatus();
}

void CpuReader::Stop() {
  if (!running_) return;
  stop_.store(true, std::memory_order_release);
  wake_.Signal();
  pthread_join(thread_, nullptr);
  running_ = false;
}

void CpuReader::SetMergeOptions(const merge::MergeOptions& options) {
  absl::MutexLock lock(&merge_mutex_);
  new_merge_options_ = options;
  merge_options_changed_.store(true, std::memory_order_release);
}

void* CpuReader::Main(void* self) {
  static_cast<CpuReader*>(self)->Run();
  return nullptr;
}

void CpuReader::Run() {
  char name[16];
  snprintf(name, sizeof(name), "ring/%u", options_.cpu);
  pthread_setname_np(pthread_self(), name);
  if (options_.pin) {
    // Where a cpuset forbids it the reader works from elsewhere: slower, and no less right.
    cpu_set_t* cpus = CPU_ALLOC(options_.cpu + 1);
    const size_t bytes = CPU_ALLOC_SIZE(options_.cpu + 1);
    if (cpus != nullptr) {
      CPU_ZERO_S(bytes, cpus);
      CPU_SET_S(options_.cpu, bytes, cpus);
      sched_setaffinity(0, bytes, cpus);
      CPU_FREE(cpus);
    }
  }
  // Of this thread alone on Linux. Without the privilege the reader runs at the daemon's own.
  setpriority(PRIO_PROCESS, 0, options_.nice);

  pollfd waits[2] = {{wake_.fd(), POLLIN, 0}, {ring_fd_, POLLIN, 0}};
  while (true) {
    if (poll(waits, 2, -1) < 0 && errno != EINTR) break;
    const bool asked = (waits[0].revents & POLLIN) != 0;
    if (asked) wake_.Clear();
    const bool stop = stop_.load(std::memory_order_acquire);
    Drain(asked || stop);
    if (stop) break;
    if ((waits[1].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) {
      // poll() would say so again and again.
      waits[1].fd = -1;
      counters_.hung_up.store(true, std::memory_order_release);
      recorder_->Signal();
    }
  }
}

void CpuReader::Drain(bool hand_on) {
  if (merge_options_changed_.exchange(false, std::memory_order_acquire)) {
    absl::MutexLock lock(&merge_mutex_);
    builder_.SetOptions(new_merge_options_);
  }
  const bool shedding = shedding_.load(std::memory_order_relaxed);
  // Before the head is read: a record of this CPU stamped earlier is in the ring by then.
  const uint64_t now_ns = NowNs();
  const perf::DrainResult result = ring_->Drain([&](absl::Span<const uint8_t> record) {
    perf::RecordHeader header;
    memcpy(&header, record.data(), sizeof(header));
    if (header.type == PERF_RECORD_SAMPLE) {
      if (shedding) {
        ++unannounced_shed_;
        return;
      }
    } else {
      ++held_sideband_;
    }
    builder_.AddRecord(record, options_.layout);
  });
  bad_records_ += result.bad_records;
  if (hand_on || builder_.samples() >= options_.hand_on_samples ||
      builder_.bytes() >= options_.hand_on_bytes || held_sideband_ >= options_.hold_sideband / 4) {
    HandOn(now_ns);
  }
}

merge::CpuBatch CpuReader::Take(uint64_t drained_until_ns) {
  merge::CpuBatch recycled;
  if (recycled_.TryPop(&recycled) && HeldBytes(recycled) > kLargestRecycledBytes) recycled = {};
  merge::CpuBatch batch = builder_.Take(drained_until_ns, std::move(recycled));
  if (bad_records_ > 0) {
    batch.bad_records += bad_records_;
    if (batch.first_bad_record.empty()) batch.first_bad_record = "a record's length is a lie";
    bad_records_ = 0;
  }
  return batch;
}

void CpuReader::HandOn(uint64_t drained_until_ns) {
  const bool stopping = stop_.load(std::memory_order_relaxed);
  // Only this thread fills the queue: what is not full now stays so.
  if (batches_.full() && !stopping) {
    Shed();
    recorder_->Signal();
    return;
  }
  merge::CpuBatch batch = Take(drained_until_ns);
  batch.shed_samples += unannounced_shed_;
  Add(counters_.shed, std::exchange(unannounced_shed_, 0));
  held_sideband_ = 0;
  Count(batch);
  if (!batches_.TryPush(std::move(batch))) rest_ = std::move(batch);
  // After the push: who sees it finds the batch.
  counters_.drained_until_ns.store(drained_until_ns, std::memory_order_release);
  recorder_->Signal();
}

void CpuReader::Shed() {
  if (builder_.bytes() < options_.hold_bytes && held_sideband_ < options_.hold_sideband) return;
  merge::CpuBatch batch = Take(0);
  unannounced_shed_ += batch.samples.size();
  // Mappings and names stay: later samples need them.
  held_sideband_ = std::min(batch.sideband.size(), options_.hold_sideband);
  Add<uint64_t>(counters_.sideband_shed, batch.sideband.size() - held_sideband_);
  for (size_t i = 0; i < held_sideband_; ++i) builder_.AddSideband(std::move(batch.sideband[i]));
  bad_records_ += batch.bad_records;
}

void CpuReader::Count(const merge::CpuBatch& batch) {
  using Type = perf::SidebandEvent::Type;
  Add<uint64_t>(counters_.samples, batch.samples.size());
  if (!batch.samples.empty()) {
    counters_.last_sample_ns.store(batch.samples.back().time_ns, std::memory_order_relaxed);
  }
  for (const perf::SidebandEvent& event : batch.sideband) {
    switch (event.type) {
      case Type::kLost:
      case Type::kLostSamples:
        Add(counters_.lost, event.count);
        break;
      case Type::kThrottle:
        throttled_since_ns_ = event.time_ns;
        break;
      case Type::kUnthrottle:
        if (throttled_since_ns_ != 0 && event.time_ns > throttled_since_ns_) {
          Add(counters_.throttled_ns, event.time_ns - throttled_since_ns_);
        }
        throttled_since_ns_ = 0;
        break;
      default:
        break;
    }
  }
  const merge::BatchBuilder::Evidence& evidence = builder_.evidence();
  counters_.hypervisor_samples.store(evidence.hypervisor_samples, std::memory_order_relaxed);
  counters_.guest_samples.store(evidence.guest_samples, std::memory_order_relaxed);
  counters_.most_hypervisor_frames.store(evidence.most_hypervisor_frames, std::memory_order_relaxed);
}

}  // namespace xenprof::daemon
