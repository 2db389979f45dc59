// The thread of one CPU: drains its ring, merges, hands batches to the recorder.
#ifndef DAEMON_CPU_READER_H_
#define DAEMON_CPU_READER_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "daemon/event_fd.h"
#include "daemon/spsc_queue.h"
#include "xenprof/merge/batch.h"
#include "xenprof/perf/ring.h"

namespace xenprof::daemon {

// What a reader has seen since it was made. Each written by one thread only, read by any.
struct ReaderCounters {
  std::atomic<uint64_t> samples = 0;
  std::atomic<uint64_t> lost = 0;  // records, as the kernel told
  std::atomic<uint64_t> shed = 0;  // samples dropped here
  std::atomic<uint64_t> sideband_shed = 0;
  std::atomic<uint64_t> throttled_ns = 0;
  std::atomic<uint64_t> last_sample_ns = 0;
  // Everything stamped earlier was handed on.
  std::atomic<uint64_t> drained_until_ns = 0;
  // Evidence for the collection mode: merge::BatchBuilder::Evidence.
  std::atomic<uint64_t> hypervisor_samples = 0;
  std::atomic<uint64_t> guest_samples = 0;
  std::atomic<uint32_t> most_hypervisor_frames = 0;
  // The kernel gave the event up: poll() said so.
  std::atomic<bool> hung_up = false;
};

struct ReaderOptions {
  uint32_t cpu = 0;
  perf::RecordLayout layout;
  merge::MergeOptions merge;
  int nice = 0;
  bool pin = true;
  // A batch is handed on when asked for, or when it has grown to one of these.
  size_t hand_on_samples = 2048;
  size_t hand_on_bytes = 64 << 10;
  // Held back at most while the queue is full; then samples are shed, and sideband beyond its own bound.
  size_t hold_bytes = 1 << 20;
  size_t hold_sideband = 8192;
};

class CpuReader {
 public:
  static constexpr size_t kQueueSlots = 8;

  // `ring` and `ring_fd` (readable when there is much to read; -1: none) outlive this. `recorder` is
  // signalled when a batch waits.
  CpuReader(perf::Ring* ring, int ring_fd, const ReaderOptions& options, EventFd* recorder);
  ~CpuReader();
  CpuReader(const CpuReader&) = delete;
  CpuReader& operator=(const CpuReader&) = delete;

  // Starts the thread, pinned to its CPU where the system lets it.
  absl::Status Start();
  // Drains once more, hands on, ends the thread. What found no room in the queue is in TakeRest() then.
  void Stop();

  // Asks for everything up to now to be handed on. Returns at once.
  void RequestDrain() { wake_.Signal(); }
  // From now on samples are dropped and counted, sideband is kept.
  void SetShedding(bool shedding) { shedding_.store(shedding, std::memory_order_relaxed); }
  // For the samples to come.
  void SetMergeOptions(const merge::MergeOptions& options);

  // The recorder's side.
  bool TakeBatch(merge::CpuBatch* batch) { return batches_.TryPop(batch); }
  void Recycle(merge::CpuBatch batch) { recycled_.TryPush(std::move(batch)); }
  merge::CpuBatch TakeRest() { return std::move(rest_); }

  const ReaderCounters& counters() const { return counters_; }
  uint32_t cpu() const { return options_.cpu; }

 private:
  static void* Main(void* self);
  void Run();
  void Drain(bool hand_on);
  void HandOn(uint64_t drained_until_ns);
  merge::CpuBatch Take(uint64_t drained_until_ns);
  void Shed();
  void Count(const merge::CpuBatch& batch);

  perf::Ring* const ring_;
  const int ring_fd_;
  const ReaderOptions options_;
  EventFd* const recorder_;

  pthread_t thread_ = {};
  bool running_ = false;
  EventFd wake_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> shedding_ = false;
  absl::Mutex merge_mutex_;  // between this reader and whoever changes its options; no other reader takes it
  merge::MergeOptions new_merge_options_ ABSL_GUARDED_BY(merge_mutex_);
  std::atomic<bool> merge_options_changed_ = false;

  // The reader's own.
  merge::BatchBuilder builder_;
  uint64_t bad_records_ = 0, unannounced_shed_ = 0;
  size_t held_sideband_ = 0;
  uint64_t throttled_since_ns_ = 0;

  ReaderCounters counters_;
  SpscQueue<merge::CpuBatch, kQueueSlots> batches_;
  SpscQueue<merge::CpuBatch, kQueueSlots> recycled_;
  merge::CpuBatch rest_;
};

}  // namespace xenprof::daemon

#endif  // DAEMON_CPU_READER_H_
