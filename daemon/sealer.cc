#include "daemon/sealer.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/log.h"

namespace xenprof::daemon {
namespace {

constexpr size_t kKeptFreeBytes = 8 << 20;
constexpr int kQuietNice = 10;
constexpr size_t kKnownChunks = 8192;
// The names and times of files against the clock of samples: steps of the calendar, and the time sealing
// takes.
constexpr absl::Duration kCalendarMargin = absl::Seconds(2);

}  // namespace

Sealer::Sealer(std::string folder, const chunk::RetentionLimits& limits, symbols::Symbolizer* symbolizer)
    : folder_(std::move(folder)), limits_(limits), symbolizer_(symbolizer) {}

Sealer::~Sealer() { Stop(); }

void Sealer::Start() { thread_ = std::thread(&Sealer::Run, this); }

void Sealer::Stop() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

bool Sealer::full() const {
  absl::MutexLock lock(&mutex_);
  return jobs_.size() + (working_ ? 1 : 0) >= kMaxJobs;
}

void Sealer::Seal(SealJob job) {
  absl::MutexLock lock(&mutex_);
  // In the order of time, since who waits may want the chunks before the last one too; but all at full
  // priority.
  if (job.urgent && thread_id_ != 0) setpriority(PRIO_PROCESS, static_cast<id_t>(thread_id_), 0);
  jobs_.push_back(std::move(job));
}

void Sealer::RequestRetention() {
  absl::MutexLock lock(&mutex_);
  retention_wanted_ = true;
}

void Sealer::Run() {
  pthread_setname_np(pthread_self(), "sealer");
  setpriority(PRIO_PROCESS, 0, kQuietNice);  // of this thread alone on Linux
  {
    absl::MutexLock lock(&mutex_);
    thread_id_ = gettid();
  }
  Recover();
  Retain();
  while (true) {
    SealJob job;
    bool retain = false;
    {
      absl::MutexLock lock(&mutex_);
      const auto something = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stop_ || retention_wanted_ || !jobs_.empty();
      };
      mutex_.Await(absl::Condition(&something));
      if (jobs_.empty() && !retention_wanted_) return;
      retain = std::exchange(retention_wanted_, false);
      if (!jobs_.empty()) {
        job = std::move(jobs_.front());
        jobs_.pop_front();
        working_ = true;
        retain = true;
      }
    }
    if (job.writer != nullptr) Do(std::move(job));
    if (retain) Retain();
    // Much of what naming took goes back to the system: the peak of a minute is not the daemon's size for
    // hours. A little stays, for every page taken anew is a fault.
    if (mallinfo2().fordblks > kKeptFreeBytes) malloc_trim(0);
    absl::MutexLock lock(&mutex_);
    working_ = false;
    if (std::none_of(jobs_.begin(), jobs_.end(), [](const SealJob& waiting) { return waiting.urgent; })) {
      setpriority(PRIO_PROCESS, 0, kQuietNice);
    }
  }
}

void Sealer::Recover() {
  absl::StatusOr<chunk::RecoveryReport> report = chunk::Recover(folder_, symbolizer_);
  if (!report.ok()) {
    LogWarning(absl::StrCat("cannot look for unfinished chunks folder=", folder_, " reason=\"",
                            report.status().message(), "\""));
    return;
  }
  for (const std::string& path : report->sealed)
    LogInfo(absl::StrCat("completed a chunk of an earlier run path=", path));
  for (const std::string& path : report->discarded) {
    LogWarning(absl::StrCat("removed an unfinished chunk without a whole block path=", path));
  }
  for (const std::string& message : report->messages) LogInfo(message);
}

void Sealer::Do(SealJob job) {
  absl::Status status = job.writer->Seal(job.tables, symbolizer_, job.end);
  if (absl::IsResourceExhausted(status)) {
    Retain();
    status = job.writer->Seal(job.tables, symbolizer_, job.end);
  }
  if (status.ok()) {
    sealed_.fetch_add(1, std::memory_order_relaxed);
    sealed_bytes_.fetch_add(job.writer->bytes(), std::memory_order_relaxed);
    LogInfo(absl::StrCat("sealed a chunk path=", job.writer->path(), " bytes=", job.writer->bytes(),
                         " samples=", job.writer->samples()));
    absl::MutexLock lock(&mutex_);
    known_.push_back({job.writer->path(), job.writer->start_ns(), job.end_ns});
    if (known_.size() > kKnownChunks) known_.pop_front();
  } else {
    LogError(absl::StrCat("cannot seal a chunk, the next start will try again path=", job.writer->path(),
                          " reason=\"", status.message(), "\""));
  }
  job.writer = nullptr;
  job.tables = {};
  if (job.done) job.done(status);
}

void Sealer::Retain() {
  absl::StatusOr<chunk::RetentionReport> report = chunk::EnforceRetention(folder_, limits_, absl::Now());
  if (!report.ok()) {
    LogWarning(absl::StrCat("cannot apply the limits of the chunk folder folder=", folder_, " reason=\"",
                            report.status().message(), "\""));
    return;
  }
  for (const std::string& path : report->removed) LogInfo(absl::StrCat("removed an old chunk path=", path));
  below_floor_.store(report->below_floor, std::memory_order_relaxed);
}

std::vector<std::string> Sealer::ChunksBetween(uint64_t start_ns, uint64_t end_ns,
                                               int64_t realtime_offset_ns) const {
  std::vector<std::string> paths;
  absl::StatusOr<std::vector<chunk::StoredChunk>> stored = chunk::ListChunks(folder_);
  if (!stored.ok()) return paths;
  const auto calendar = [&](uint64_t ns) {
    return absl::FromUnixNanos(static_cast<int64_t>(ns) + realtime_offset_ns);
  };
  absl::MutexLock lock(&mutex_);
  for (const chunk::StoredChunk& candidate : *stored) {
    const auto known = std::find_if(known_.begin(), known_.end(),
                                    [&](const Known& entry) { return entry.path == candidate.path; });
    const bool overlaps = known != known_.end()
                              ? known->start_ns < end_ns && known->end_ns > start_ns
                              : candidate.start < calendar(end_ns) + kCalendarMargin &&
                                    candidate.modified > calendar(start_ns) - kCalendarMargin;
    if (overlaps) paths.push_back(candidate.path);
  }
  return paths;
}

}  // namespace xenprof::daemon
