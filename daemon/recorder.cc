#include "daemon/recorder.h"

#include <poll.h>
#include <pthread.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/clock.h"
#include "daemon/host_facts.h"
#include "daemon/log.h"
#include "daemon/proc_scan.h"

namespace xenprof::daemon {
namespace {

using Kind = merge::Incident::Kind;

// A reader that does not answer for this long is starved: the others go on without it.
constexpr uint64_t kPatienceNs = 2 * kSecondNs;
// While someone waits.
constexpr uint64_t kSnapshotPatienceNs = kSecondNs / 2;
// The PMU has this long to give its first sample.
constexpr uint64_t kDeliveryNs = 3 * kSecondNs / 2;
constexpr size_t kMaxSnapshots = 16;
// Samples that wait or stand in the window before a block is due; a high frequency on many CPUs passes these.
// The fewer wait, the more of them are still in the cache; on many CPUs each round asks every reader.
constexpr size_t kWaitingSamplesPerCpu = 1 << 12, kLeastWaitingSamples = 1 << 13,
                 kMostWaitingSamples = 1 << 15;
constexpr size_t kBlockSamples = 1 << 18;
// A chunk whose tables have grown to this is turned over early.
constexpr size_t kTableBytes = 12 << 20;

CollectorOptions CollectorOptionsOf(const Config& config) {
  CollectorOptions options;
  options.event = config.event;
  options.frequency_hz = config.frequency_hz;
  options.max_stack = config.max_stack;
  options.ring_bytes = uint64_t{config.ring_kib} << 10;
  options.reader_nice = config.reader_nice;
  return options;
}

BudgetLimits BudgetLimitsOf(const Config& config, size_t cpus) {
  BudgetLimits limits;
  limits.cpu_permille = config.cpu_permille;
  limits.memory_bytes =
      config.memory_mib != 0 ? uint64_t{config.memory_mib} << 20 : (uint64_t{48} << 20) + cpus * (256 << 10);
  return limits;
}

}  // namespace

std::string ProducerName() { return absl::StrCat("xenprofd ", XENPROF_VERSION); }

Recorder::Recorder(const Config& config, XenSession* xen, symbols::LiveSymbolizer* symbolizer, Sealer* sealer)
    : config_(config),
      xen_(xen),
      symbolizer_(symbolizer),
      sealer_(sealer),
      started_ns_(NowNs()),
      collector_(CollectorOptionsOf(config), &assembler_, &wake_),
      budget_(BudgetLimitsOf(config, std::thread::hardware_concurrency()), config.frequency_hz) {}

Recorder::~Recorder() { Stop(); }

absl::Status Recorder::Open() {
  if (!wake_.valid()) return absl::ResourceExhaustedError("no descriptor left for the recorder");
  collector_.SetOnXen(xen_->on_xen());
  collector_.SetMergeOptions(xen_->merge_options());
  absl::Status opened = collector_.Open();
  if (!opened.ok()) return opened;
  opened_ns_ = block_start_ns_ = advanced_ns_ = NowNs();
  std::string problem;
  std::vector<std::string> notes = collector_.TakeNotes();
  for (const std::string& note : notes) Say(true, note);
  if (!notes.empty()) problem = notes.front();
  xen_->EventsOpened(collector_.plan().options().event, problem);
  collector_.SetMergeOptions(xen_->merge_options());
  TakeNotes();
  return absl::OkStatus();
}

void Recorder::Start() { thread_ = std::thread(&Recorder::Run, this); }

void Recorder::Stop() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  wake_.Signal();
  thread_.join();
}

void Recorder::Post(std::function<void()> command) {
  {
    absl::MutexLock lock(&mutex_);
    commands_.push_back(std::move(command));
    has_commands_.store(true, std::memory_order_relaxed);
  }
  wake_.Signal();
}

void Recorder::Run() {
  pthread_setname_np(pthread_self(), "recorder");
  Prepare();
  while (!stop_.load(std::memory_order_acquire)) {
    pollfd wait = {wake_.fd(), POLLIN, 0};
    poll(&wait, 1, WaitMs(NowNs()));
    wake_.Clear();
    last_turn_ns_.store(NowNs(), std::memory_order_relaxed);
    collector_.Collect();
    RunCommands();
    const uint64_t now_ns = NowNs();
    if (now_ns >= next_second_ns_) EverySecond(now_ns);
    AnswerSnapshots(now_ns);
    if (now_ns >= next_block_ns_) {
      EveryBlock(now_ns);
    } else {
      AdvanceEarly();
    }
  }
  collector_.Close();
  const uint64_t end_ns = NowNs();
  Advance(end_ns);
  WriteBlock(end_ns);
  SealChunk(proto::Trailer::STOPPED, false, nullptr);
  RunCommands();
  for (PendingSnapshot& snapshot : snapshots_) snapshot.done(absl::UnavailableError("xenprofd is stopping"));
}

// What the first block needs and the first sample does not.
void Recorder::Prepare() {
  const uint64_t begin_ns = NowNs();
  last_turn_ns_.store(begin_ns, std::memory_order_relaxed);
  assembler_.SetHypervisorText(xen_->hypervisor_text());
  assembler_.OnNewMapping([this](const merge::Mapping& mapping, uint32_t pid, uint64_t) {
    symbols::MappingInfo info;
    info.kind = mapping.kind;
    info.name = mapping.name;
    info.build_id = mapping.build_id;
    info.is_file = mapping.is_file;
    info.deleted = mapping.deleted;
    info.pid = mapping.pid;
    info.pids = {pid};
    symbolizer_->Note(info);
  });
  assembler_.OnKernelSymbols([this] { symbolizer_->KernelSymbolsChanged(); });
  ScanProcesses(opened_ns_);
  host_ = ReadHostFacts();
  const KernelText kernel = ReadKernelText();
  if (kernel.restricted) {
    Say(true,
        "kernel addresses are hidden (kernel.kptr_restrict): kernel functions stay unnamed, their addresses "
        "and the build "
        "id are kept");
  }
  assembler_.SetKernelText(kernel.ranges);
  modules_ = ModuleFingerprint();
  if (xen_->on_xen()) {
    xen_->SetIdleRanges(symbolizer_->XenIdleRanges());
    collector_.SetMergeOptions(xen_->merge_options());
  }
  OpenChunk(block_start_ns_);
  const uint64_t now_ns = NowNs();
  next_second_ns_ = now_ns + kSecondNs / 5;  // the first numbers soon
  next_block_ns_ = now_ns + config_.block_seconds * kSecondNs;
  LogInfo(absl::StrCat("collecting event=", collector_.plan().options().event,
                       " frequency_hz=", collector_.plan().options().frequency_hz,
                       " cpus=", collector_.cpu_count(), " ring_kib=", collector_.ring_bytes() >> 10,
                       " mode=\"", ModeName(static_cast<ModeKind>(xen_->mode().kind())),
                       "\" prepared_ms=", (now_ns - begin_ns) / kMillisecondNs));
}

void Recorder::ScanProcesses(uint64_t time_ns) {
  ProcScanOptions options;
  const std::vector<std::string>& refused = collector_.plan().refused();
  options.build_ids = std::find(refused.begin(), refused.end(), "build_id") == refused.end();
  options.time_ns = time_ns;
  absl::StatusOr<ProcScanReport> report = daemon::ScanProcesses(
      options,
      [this](uint32_t pid, uint32_t tid, absl::string_view comm, bool kernel_thread) {
        assembler_.AddProcess(pid, tid, comm, kernel_thread);
      },
      [this](const perf::SidebandEvent& mmap) { assembler_.AddMapping(mmap); });
  if (!report.ok()) {
    Say(true, absl::StrCat("processes that ran before xenprofd stay unnamed: ", report.status().message()));
    return;
  }
  if (report->unreadable > 0) {
    Say(true, absl::StrCat("the mappings of ", report->unreadable,
                           report->unreadable == 1 ? " process" : " processes",
                           " may not be read (CAP_SYS_PTRACE): functions there stay unnamed"));
  }
  LogDebug(absl::StrCat("read /proc processes=", report->processes,
                        " kernel_threads=", report->kernel_threads, " threads=", report->threads,
                        " mappings=", report->mappings));
}

int Recorder::WaitMs(uint64_t now_ns) const {
  // Their signal may have been taken by Drain.
  if (has_commands_.load(std::memory_order_relaxed)) return 0;
  uint64_t next = std::min(next_block_ns_, next_second_ns_);
  for (const PendingSnapshot& snapshot : snapshots_) {
    next = std::min(next, snapshot.end_ns);
  }
  if (next <= now_ns) return 0;
  return static_cast<int>((next - now_ns + kMillisecondNs - 1) / kMillisecondNs);
}

void Recorder::RunCommands() {
  std::vector<std::function<void()>> commands;
  {
    absl::MutexLock lock(&mutex_);
    commands.swap(commands_);
    has_commands_.store(false, std::memory_order_relaxed);
  }
  for (const std::function<void()>& command : commands) command();
}

void Recorder::EverySecond(uint64_t now_ns) {
  next_second_ns_ = now_ns + kSecondNs;
  collector_.CheckCpus();
  if (!delivery_checked_ && now_ns >= opened_ns_ + kDeliveryNs) {
    delivery_checked_ = true;
    Drain(now_ns, kSecondNs / 5);
    const std::string done = collector_.CheckDelivery();
    if (!done.empty()) {
      Say(true, done);
      xen_->EventsOpened(collector_.plan().options().event, done);
      collector_.SetMergeOptions(xen_->merge_options());
      if (writer_ != nullptr) writer_->SetMode(xen_->mode());
    }
  } else if (!delivery_checked_ ||
             std::any_of(snapshots_.begin(), snapshots_.end(),
                         [](const PendingSnapshot& snapshot) { return snapshot.progress; })) {
    collector_.RequestDrain(now_ns);
  }
  uint64_t samples = 0;
  for (const Collector::CpuState& state : collector_.States()) samples += state.samples;
  samples_.store(samples, std::memory_order_relaxed);
  if (collector_.TakeGap()) {
    // Whatever was mapped meanwhile told nobody.
    const uint64_t until_ns = NowNs();
    Drain(until_ns, kSecondNs / 5);
    Advance(until_ns);
    ScanProcesses(until_ns);
  }
  TakeNotes();
}

void Recorder::EveryBlock(uint64_t now_ns) {
  next_block_ns_ = now_ns + config_.block_seconds * kSecondNs;
  const uint64_t until_ns = NowNs();
  Drain(until_ns, kPatienceNs);
  Advance(until_ns);
  collector_.CheckSilence();
  CheckModules();
  CheckXen(until_ns);
  WriteBlock(until_ns);
  const bool old = until_ns - chunk_start_ns_ >= config_.rotate_seconds * kSecondNs;
  const bool large = writer_ != nullptr && (writer_->bytes() >= uint64_t{config_.rotate_mib} << 20 ||
                                            assembler_.memory_bytes() >= kTableBytes);
  // A sealer that is behind makes chunks longer, not more.
  if ((old || large) && writer_ != nullptr && !sealer_->full()) {
    SealChunk(old ? proto::Trailer::ROTATED_TIME : proto::Trailer::ROTATED_SIZE, false, nullptr);
    OpenChunk(until_ns);
  }
  CheckBudget(now_ns);
  TakeNotes();
}

void Recorder::Drain(uint64_t until_ns, uint64_t patience_ns) {
  // Readers answer within microseconds when they get their CPU.
  const uint64_t begin_ns = NowNs();
  while (!collector_.RequestDrain(until_ns)) {
    if (NowNs() - begin_ns >= patience_ns) {
      if (patience_ns >= kSnapshotPatienceNs)
        LogWarning("a reader does not get its CPU: going on without it");
      break;
    }
    pollfd wait = {wake_.fd(), POLLIN, 0};
    poll(&wait, 1, 20);
    wake_.Clear();
    collector_.Collect();
  }
  collector_.Collect();
}

void Recorder::Advance(uint64_t until_ns) {
  if (until_ns <= advanced_ns_) return;
  if (window_.start_ns == 0) window_.start_ns = block_start_ns_;
  assembler_.Advance(until_ns, &window_);
  advanced_ns_ = until_ns;
}

void Recorder::AdvanceEarly() {
  const size_t enough =
      std::clamp(kWaitingSamplesPerCpu * collector_.cpu_count(), kLeastWaitingSamples, kMostWaitingSamples);
  if (assembler_.waiting_samples() < enough) return;
  const uint64_t drained_ns = collector_.DrainedUntilNs();
  // One idle CPU holds all others up: it is asked to say that it has nothing.
  if (drained_ns + kSecondNs / 4 < NowNs()) collector_.RequestDrain(NowNs());
  Advance(drained_ns);
  if (window_.samples() >= kBlockSamples) WriteBlock(advanced_ns_);
}

void Recorder::WriteBlock(uint64_t until_ns) {
  const uint64_t start_ns = block_start_ns_;
  block_start_ns_ = until_ns;
  for (merge::CpuColumns& columns : window_.cpus) {
    uint64_t sampled_ns = collector_.OpenNs(columns.cpu, start_ns, until_ns);
    for (const merge::Incident& incident : window_.incidents) {
      if (incident.kind != Kind::kThrottled || incident.cpu != static_cast<int64_t>(columns.cpu)) continue;
      sampled_ns -= std::min(sampled_ns, incident.end_ns - incident.start_ns);
    }
    columns.sampled_ns = sampled_ns;
  }
  if (!RoomOnDisk()) {
    if (gap_since_ns_ == 0)
      PauseWriting(start_ns, "too little free space on the file system of " + config_.state_dir);
  } else if (gap_since_ns_ != 0 && !stopped_by_budget_) {
    // Tables hold ids of blocks that were never written: this window goes too, and the gap ends with it.
    assembler_.StartChunk();
    window_.Clear();
    window_.start_ns = 0;
    const uint64_t gap_since_ns = gap_since_ns_;
    const std::string reason = pause_reason_;
    if (OpenChunk(until_ns)) {
      assembler_.AddIncident({Kind::kGap, -1, gap_since_ns, until_ns, 0, "writing had paused: " + reason});
      Say(false, "writing goes on");
    }
    return;
  }
  if (writer_ == nullptr) {
    assembler_.StartChunk();
    window_.Clear();
    window_.start_ns = 0;
    return;
  }
  absl::Status written = writer_->WriteBlock(window_, assembler_.tables(), RealtimeOffsetNs());
  window_.Clear();
  window_.start_ns = 0;
  if (!written.ok()) {
    Say(true, absl::StrCat("a block could not be written: ", written.message()));
    assembler_.AddIncident({Kind::kGap, -1, start_ns, until_ns, 0,
                            absl::StrCat("the block could not be written: ", written.message())});
    sealer_->RequestRetention();
  }
}

bool Recorder::RoomOnDisk() {
  const uint64_t floor = uint64_t{config_.min_free_mib} << 20;
  struct statvfs file_system;
  if (floor == 0 || statvfs(config_.state_dir.c_str(), &file_system) != 0) return true;
  const uint64_t free_bytes = file_system.f_bavail * static_cast<uint64_t>(file_system.f_frsize);
  if (gap_since_ns_ != 0) {
    // Not on and off around the floor.
    const bool room = free_bytes >= floor + floor / 20;
    if (!room) sealer_->RequestRetention();
    return room;
  }
  if (free_bytes >= floor) return true;
  // Old chunks make room first; only when that has not helped is it given up.
  sealer_->RequestRetention();
  return !sealer_->below_floor();
}

void Recorder::PauseWriting(uint64_t now_ns, const std::string& reason) {
  gap_since_ns_ = now_ns;
  pause_reason_ = reason;
  Say(true, absl::StrCat("writing has paused: ", reason));
  SealChunk(proto::Trailer::DISK_LOW, false, nullptr);
}

bool Recorder::OpenChunk(uint64_t start_ns) {
  proto::Header header;
  header.set_producer(ProducerName());
  header.set_start_ns(start_ns);
  const int64_t offset_ns = RealtimeOffsetNs();
  header.set_realtime_offset_ns(offset_ns);
  *header.mutable_host() = host_;
  *header.mutable_event() = EventFacts();
  *header.mutable_mode() = xen_->mode();
  if (xen_->on_xen()) *header.mutable_hypervisor() = xen_->facts();
  header.set_source(proto::Header::LIVE);
  for (const proto::Note& note : notes_) *header.add_notes() = note;
  uint64_t random[2] = {};
  if (getentropy(random, sizeof(random)) != 0) random[0] = random[1] = NowNs();
  header.set_chunk_id(std::string(reinterpret_cast<const char*>(random), sizeof(random)));
  const absl::Time start = absl::FromUnixNanos(static_cast<int64_t>(start_ns) + offset_ns);
  const std::string path =
      absl::StrCat(config_.state_dir, "/", chunk::ChunkFileName(start, static_cast<uint32_t>(random[0])));
  absl::StatusOr<std::unique_ptr<chunk::ChunkWriter>> writer =
      chunk::ChunkWriter::Create(path, std::move(header), {.memory = writer_memory_});
  chunk_start_ns_ = start_ns;
  if (!writer.ok()) {
    if (gap_since_ns_ == 0) {
      gap_since_ns_ = start_ns;
      pause_reason_ = std::string(writer.status().message());
      Say(true, absl::StrCat("writing has paused: ", pause_reason_));
    }
    return false;
  }
  writer_ = *std::move(writer);
  gap_since_ns_ = 0;
  pause_reason_.clear();
  LogDebug(absl::StrCat("began a chunk path=", path));
  return true;
}

void Recorder::SealChunk(proto::Trailer::End end, bool urgent,
                         std::function<void(const absl::Status&)> done) {
  merge::Tables tables = assembler_.StartChunk();
  if (writer_ == nullptr) {
    if (done) done(absl::FailedPreconditionError("nothing is being written"));
    return;
  }
  written_bytes_ += writer_->bytes();
  sealer_->Seal({std::move(writer_), std::move(tables), end, block_start_ns_, urgent, std::move(done)});
}

void Recorder::AnswerSnapshots(uint64_t now_ns) {
  const bool due = std::any_of(snapshots_.begin(), snapshots_.end(),
                               [&](const PendingSnapshot& snapshot) { return snapshot.end_ns <= now_ns; });
  if (!due) return;
  const uint64_t until_ns = NowNs();
  Drain(until_ns, kSnapshotPatienceNs);
  Advance(until_ns);
  WriteBlock(until_ns);
  next_block_ns_ = until_ns + config_.block_seconds * kSecondNs;
  std::vector<PendingSnapshot> answered;
  for (size_t i = 0; i < snapshots_.size();) {
    if (snapshots_[i].end_ns > until_ns) {
      ++i;
      continue;
    }
    answered.push_back(std::move(snapshots_[i]));
    snapshots_.erase(snapshots_.begin() + static_cast<ptrdiff_t>(i));
  }
  if (writer_ == nullptr) {
    const absl::Status problem = absl::FailedPreconditionError(
        absl::StrCat("nothing is being written: ", pause_reason_.empty() ? "see the log" : pause_reason_));
    for (PendingSnapshot& snapshot : answered) snapshot.done(problem);
    return;
  }
  const int64_t offset_ns = RealtimeOffsetNs();
  SealChunk(proto::Trailer::REQUESTED, true, [this, answered, offset_ns](const absl::Status& sealed) {
    for (const PendingSnapshot& snapshot : answered) {
      if (!sealed.ok()) {
        snapshot.done(sealed);
        continue;
      }
      SnapshotResult result{snapshot.start_ns, snapshot.end_ns, {}};
      result.chunks = sealer_->ChunksBetween(snapshot.start_ns, snapshot.end_ns, offset_ns);
      snapshot.done(std::move(result));
    }
  });
  OpenChunk(until_ns);
}

void Recorder::Snapshot(uint64_t future_ns, uint64_t past_ns, bool progress,
                        std::function<void(absl::StatusOr<SnapshotResult>)> done) {
  const uint64_t now_ns = NowNs();
  Post([this, future_ns, past_ns, progress, now_ns, done = std::move(done)] {
    if (snapshots_.size() >= kMaxSnapshots) {
      done(absl::ResourceExhaustedError(absl::StrCat(kMaxSnapshots, " snapshots are being taken already")));
      return;
    }
    if (writer_ == nullptr) {
      done(absl::FailedPreconditionError(absl::StrCat("nothing is being written: ", pause_reason_)));
      return;
    }
    snapshots_.push_back({now_ns - std::min(past_ns, now_ns), now_ns + future_ns, progress, done});
  });
}

void Recorder::SetFrequency(uint32_t hz, const std::string& who,
                            std::function<void(absl::StatusOr<uint32_t>)> done) {
  Post([this, hz, who, done = std::move(done)] {
    if (!collector_.open()) {
      done(absl::FailedPreconditionError("collecting has stopped, see the notes of `xenprofctl status`"));
      return;
    }
    absl::StatusOr<uint32_t> previous = collector_.SetFrequency(hz);
    if (previous.ok()) {
      budget_.SetWanted(hz);
      LogInfo(absl::StrCat("frequency changed from_hz=", *previous, " to_hz=", hz, " by=", who));
    }
    done(previous);
  });
}

void Recorder::GetStatus(std::function<void(const proto::StatusResponse&)> done) {
  Post([this, done = std::move(done)] {
    // Numbers of now, unless someone asks without end.
    const uint64_t now_ns = NowNs();
    if (now_ns - drained_for_status_ns_ >= kSecondNs / 4) {
      Drain(now_ns, kSecondNs / 10);
      drained_for_status_ns_ = NowNs();
    }
    done(MakeStatus());
  });
}

}  // namespace xenprof::daemon
