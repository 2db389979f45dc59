// Completes chunks on a thread of low priority, and keeps the folder within its limits: names take time that
// rings must not wait for.
#ifndef DAEMON_SEALER_H_
#define DAEMON_SEALER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "xenprof/chunk/store.h"
#include "xenprof/chunk/writer.h"
#include "xenprof/merge/window.h"

namespace xenprof::daemon {

struct SealJob {
  std::unique_ptr<chunk::ChunkWriter> writer;
  merge::Tables tables;
  proto::Trailer::End end = proto::Trailer::UNSPECIFIED;
  uint64_t end_ns = 0;                            // of what the chunk covers
  bool urgent = false;                            // someone waits
  std::function<void(const absl::Status&)> done;  // on the sealer's thread; may be empty
};

class Sealer {
 public:
  // Chunks waiting; each holds its tables in memory.
  static constexpr size_t kMaxJobs = 4;

  Sealer(std::string folder, const chunk::RetentionLimits& limits, symbols::Symbolizer* symbolizer);
  ~Sealer();

  // First completes what an earlier run has left.
  void Start();
  // Finishes what waits, then ends the thread.
  void Stop();

  bool full() const;
  // Never refused; ask full() before taking on more than what must be.
  void Seal(SealJob job);
  // Applies the limits soon, without a chunk being sealed.
  void RequestRetention();
  // As last seen: even without sealed chunks there is less room than is to be left free.
  bool below_floor() const { return below_floor_.load(std::memory_order_relaxed); }

  // Sealed chunks that overlap [start_ns, end_ns), oldest first. `realtime_offset_ns` leads from those times
  // to the calendar, which is all that is known of chunks of an earlier run.
  std::vector<std::string> ChunksBetween(uint64_t start_ns, uint64_t end_ns,
                                         int64_t realtime_offset_ns) const;

  uint64_t sealed_chunks() const { return sealed_.load(std::memory_order_relaxed); }
  uint64_t sealed_bytes() const { return sealed_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Known {
    std::string path;
    uint64_t start_ns, end_ns;
  };

  void Run();
  void Recover();
  void Do(SealJob job);
  void Retain();

  const std::string folder_;
  const chunk::RetentionLimits limits_;
  symbols::Symbolizer* const symbolizer_;

  mutable absl::Mutex mutex_;
  std::deque<SealJob> jobs_ ABSL_GUARDED_BY(mutex_);
  bool working_ ABSL_GUARDED_BY(mutex_) = false;
  int thread_id_ ABSL_GUARDED_BY(mutex_) = 0;
  bool retention_wanted_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Known> known_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
  std::atomic<bool> below_floor_ = false;
  std::atomic<uint64_t> sealed_ = 0, sealed_bytes_ = 0;
};

}  // namespace xenprof::daemon

#endif  // DAEMON_SEALER_H_
