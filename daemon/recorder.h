// The thread that owns the chunk: brings the CPUs' batches together, writes blocks, turns chunks over.
#ifndef DAEMON_RECORDER_H_
#define DAEMON_RECORDER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "chunk.pb.h"
#include "control.pb.h"
#include "daemon/budget.h"
#include "daemon/collector.h"
#include "daemon/config.h"
#include "daemon/event_fd.h"
#include "daemon/sealer.h"
#include "daemon/xen_session.h"
#include "xenprof/chunk/writer.h"
#include "xenprof/merge/assembler.h"
#include "xenprof/symbols/live_symbolizer.h"

namespace xenprof::daemon {

// "xenprofd 0.1.0".
std::string ProducerName();

struct SnapshotResult {
  uint64_t start_ns = 0, end_ns = 0;  // the window
  std::vector<std::string> chunks;    // sealed, oldest first
};

class Recorder {
 public:
  // All outlive this.
  Recorder(const Config& config, XenSession* xen, symbols::LiveSymbolizer* symbolizer, Sealer* sealer);
  ~Recorder();

  // Opens the events; samples are taken from then on. On the caller's thread.
  absl::Status Open();
  void Start();
  // Takes what the rings hold, writes it, hands the chunk to the sealer, ends the thread.
  void Stop();

  // -- from any thread. Callbacks run on the recorder's or the sealer's thread and must not block.
  // Collects `future_ns` from now, then seals; answers with the chunks of that time and of `past_ns` before
  // it. ResourceExhausted: too many at a time. FailedPrecondition: nothing is being written.
  // `progress`: samples() is kept up to date meanwhile.
  void Snapshot(uint64_t future_ns, uint64_t past_ns, bool progress,
                std::function<void(absl::StatusOr<SnapshotResult>)> done);
  // Answers with the previous frequency.
  void SetFrequency(uint32_t hz, const std::string& who, std::function<void(absl::StatusOr<uint32_t>)> done);
  void GetStatus(std::function<void(const proto::StatusResponse&)> done);
  uint64_t samples() const { return samples_.load(std::memory_order_relaxed); }
  // CLOCK_MONOTONIC_RAW of the last turn of the loop, for the watchdog.
  uint64_t last_turn_ns() const { return last_turn_ns_.load(std::memory_order_relaxed); }

 private:
  struct PendingSnapshot {
    uint64_t start_ns, end_ns;
    bool progress;
    std::function<void(absl::StatusOr<SnapshotResult>)> done;
  };

  void Run();
  void Prepare();
  int WaitMs(uint64_t now_ns) const;
  void RunCommands();
  void EverySecond(uint64_t now_ns);
  void EveryBlock(uint64_t now_ns);
  void AnswerSnapshots(uint64_t now_ns);

  // Waits until all readers have handed on what is stamped before `until_ns`, for `patience_ns` at most.
  void Drain(uint64_t until_ns, uint64_t patience_ns);
  void Advance(uint64_t until_ns);
  void AdvanceEarly();
  void WriteBlock(uint64_t until_ns);
  // False: writing pauses, it is tried again with every block.
  bool OpenChunk(uint64_t start_ns);
  void SealChunk(proto::Trailer::End end, bool urgent, std::function<void(const absl::Status&)> done);
  bool RoomOnDisk();
  void PauseWriting(uint64_t now_ns, const std::string& reason);
  void CheckBudget(uint64_t now_ns);
  void CheckModules();
  void CheckXen(uint64_t now_ns);
  // What /proc shows now, as of `time_ns`.
  void ScanProcesses(uint64_t time_ns);
  // To the log, the status and the next chunk.
  void Say(bool warning, const std::string& text);
  void TakeNotes();
  proto::StatusResponse MakeStatus();
  proto::Event EventFacts() const;
  void Post(std::function<void()> command);

  const Config config_;
  XenSession* const xen_;
  symbols::LiveSymbolizer* const symbolizer_;
  Sealer* const sealer_;
  const uint64_t started_ns_;

  EventFd wake_;
  absl::Mutex mutex_;
  std::vector<std::function<void()>> commands_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> stop_ = false, has_commands_ = false;
  std::atomic<uint64_t> samples_ = 0, last_turn_ns_ = 0;
  std::thread thread_;

  // The recorder's own from here on.
  merge::Assembler assembler_;
  Collector collector_;
  Budget budget_;
  proto::Host host_;
  merge::Window window_;
  std::unique_ptr<chunk::ChunkWriter> writer_;
  const std::shared_ptr<chunk::WriterMemory> writer_memory_ = chunk::NewWriterMemory();
  uint64_t opened_ns_ = 0;  // events
  uint64_t block_start_ns_ = 0;
  uint64_t advanced_ns_ = 0;
  uint64_t chunk_start_ns_ = 0;
  uint64_t next_block_ns_ = 0, next_second_ns_ = 0;
  uint64_t drained_for_status_ns_ = 0;
  uint64_t written_bytes_ = 0;  // of chunks already handed to the sealer
  uint64_t gap_since_ns_ = 0;   // writing has paused since; 0: it has not
  std::string pause_reason_;
  std::string modules_;
  bool delivery_checked_ = false;
  bool stopped_by_budget_ = false;
  int xen_check_countdown_ = 0;
  std::vector<PendingSnapshot> snapshots_;
  std::vector<proto::Note> notes_;
};

}  // namespace xenprof::daemon

#endif  // DAEMON_RECORDER_H_
