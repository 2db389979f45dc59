#include "client/import_pipeline.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/import_mode.h"
#include "client/import_scan.h"
#include "xenprof/chunk/writer.h"
#include "xenprof/merge/assembler.h"
#include "xenprof/merge/batch.h"
#include "xenprof/perf/perf_data.h"
#include "xenprof/symbols/live_symbolizer.h"

namespace xenprof::client {
namespace {

using perf::SidebandEvent;

constexpr uint64_t kBlockNs = 5'000'000'000;
// Longer blocks for recordings of days, and for files whose records are far from the order of time.
constexpr uint64_t kMaxBlocks = 1 << 16;
constexpr uint64_t kMaxOpenBlocks = 256;
constexpr uint32_t kDefaultMaxStack = 127;  // sysctl kernel.perf_event_max_stack
constexpr int64_t kNsPerSecond = 1'000'000'000;

class Importer {
 public:
  explicit Importer(const ImportOptions& options) : options_(options) {}

  absl::StatusOr<ImportResult> Run();

 private:
  // Batches being filled, of one stretch of time.
  struct Block {
    std::map<uint32_t, std::unique_ptr<merge::BatchBuilder>> cpus;
  };

  absl::Status ChooseEvent();
  void FindMode();
  void SetUpAssembler();
  void NoteWhatIsMissing();
  proto::Header MakeHeader() const;
  int64_t RealtimeOffset();
  absl::Status Feed();
  void TakeSample(const perf::DataRecord& record);
  void TakeSideband(const perf::DataRecord& record);
  merge::BatchBuilder& BuilderAt(uint64_t time_ns, uint32_t cpu);
  // Writes all blocks that end before `until_ns`.
  absl::Status WriteBlocks(uint64_t until_ns);
  absl::Status WriteBlock(uint64_t index, Block block);
  void Warn(std::string text) { result_.warnings.push_back(std::move(text)); }
  void Remark(std::string text) { result_.remarks.push_back(std::move(text)); }

  const ImportOptions& options_;
  std::unique_ptr<perf::PerfDataFile> file_;
  ImportScan scan_;
  const perf::PerfEvent* event_ = nullptr;
  const EventScan* event_scan_ = nullptr;
  // Without stamps the order in the file stands for time, one record a nanosecond.
  bool stamped_ = true;
  uint64_t ordinal_ = 0;
  uint64_t start_ns_ = 0, end_ns_ = 0;  // of all records
  uint64_t lateness_ns_ = 0;
  uint64_t block_ns_ = kBlockNs;
  uint64_t latest_ns_ = 0;
  int64_t realtime_offset_ns_ = 0;

  std::unique_ptr<symbols::LiveSymbolizer> symbolizer_;
  std::unique_ptr<BuildIdTable> build_ids_;
  merge::MergeOptions merge_;
  merge::Assembler assembler_;
  merge::Window window_;
  std::map<uint64_t, Block> blocks_;  // by index: time since start_ns_ in units of block_ns_
  std::unique_ptr<chunk::ChunkWriter> writer_;
  std::map<uint32_t, uint64_t> unknown_records_;  // by type
  uint64_t lost_in_all_ = 0;
  ImportResult result_;
};

absl::Status Importer::ChooseEvent() {
  const auto& events = file_->events();
  std::vector<std::string> names;
  size_t chosen = events.size();
  for (size_t i = 0; i < events.size(); ++i) {
    if (!events[i]->samples_addresses()) continue;
    names.push_back(events[i]->name);
    const bool wanted = options_.event.empty()
                            ? scan_.events[i].samples > 0
                            : options_.event == events[i]->name || options_.event == events[i]->plain_name();
    if (wanted && chosen == events.size()) chosen = i;
  }
  if (chosen == events.size()) {
    if (!options_.event.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(file_->name(), ": has no event ", options_.event,
                                                     names.empty() ? "" : "; it has ",
                                                     absl::StrJoin(names, ", ")));
    }
    return absl::NotFoundError(absl::StrCat(file_->name(), ": holds no samples of addresses",
                                            names.empty() ? "" : "; events: ", absl::StrJoin(names, ", ")));
  }
  event_ = events[chosen].get();
  event_scan_ = &scan_.events[chosen];
  if (event_scan_->samples == 0) {
    return absl::NotFoundError(absl::StrCat(file_->name(), ": holds no samples of ", event_->name));
  }
  result_.event = event_->plain_name();
  for (size_t i = 0; i < events.size(); ++i) {
    if (i == chosen || scan_.events[i].samples == 0) continue;
    result_.left_out.push_back({events[i]->name, scan_.events[i].samples});
    Remark(absl::StrCat("one event makes a profile: ", scan_.events[i].samples, " samples of ",
                        events[i]->name, " were left out; import them with --event ",
                        events[i]->plain_name()));
  }
  return absl::OkStatus();
}

void Importer::FindMode() {
  const size_t index = static_cast<size_t>(event_scan_ - scan_.events.data());
  const ImportMode mode =
      FindImportMode(scan_, index, *event_, !options_.xen_symbols.empty(), symbolizer_.get());
  result_.mode = mode.kind;
  result_.mode_reason = mode.reason;
  merge_.hypervisor_stacks = mode.kind == ModeKind::kXenStacks;
  // Only a PV dom0's kernel gets samples in Xen (a PVH dom0 has no vPMU).
  merge_.pv_dom0 = event_scan_->hypervisor_samples > 0;
  merge_.software_clock_on_xen = mode.kind == ModeKind::kDom0Only && event_->is_software_clock();
  if (merge_.software_clock_on_xen && event_scan_->guest_samples > 0) {
    Warn(absl::StrCat(
        event_scan_->guest_samples, " samples show a guest although ", event_->plain_name(),
        " cannot sample any: mode and address are left over from an earlier use of the PMU; they count "
        "as dom0's, at an unknown address"));
  }
  merge_.max_stack = event_->max_stack != 0 ? event_->max_stack : kDefaultMaxStack;
  merge_.keep_unmapped_callers = options_.keep_unmapped_callers;
  if (event_scan_->hypervisor_samples > 0) {
    merge_.xen_idle = symbolizer_->XenIdleRanges();
    if (merge_.xen_idle.empty()) {
      Warn(
          "without Xen's symbols (--xen-symbols FILE) an idle Xen cannot be told from one that serves a "
          "guest");
    }
  }
}

void Importer::SetUpAssembler() {
  assembler_.KeepUnmappedCallers(options_.keep_unmapped_callers);
  assembler_.SetKernelText(scan_.kernel_text);
  for (const ImportScan::Process& process : scan_.processes) {
    assembler_.AddProcess(process.pid, process.tid, process.comm, process.kernel_thread);
  }
  for (const SidebandEvent& mapping : scan_.mappings) assembler_.AddMapping(mapping);
  for (uint32_t cpu : event_scan_->cpus) assembler_.StartCpu(cpu, event_scan_->first_ns);
}

void Importer::NoteWhatIsMissing() {
  if (scan_.bad_records > 0)
    Warn(absl::StrCat(scan_.bad_records, " records contradict themselves and were left out"));
  if (scan_.orphan_samples > 0) {
    Warn(absl::StrCat(scan_.orphan_samples,
                      " samples are of an event that the file does not describe, and were left out"));
  }
  if (!stamped_) Warn("the records have no time: their order in the file stands for it");
  if (event_scan_->without_cpu > 0) {
    Remark("the samples do not say on which CPU they were taken: all are shown as CPU 0");
  }
  if ((event_->layout.sample_type & (1 << 5)) == 0) {
    Warn("recorded without call chains (perf record -g): only the sampled addresses are known");
  }
  if (scan_.processes.empty() && scan_.mappings.empty()) {
    Warn("nothing was recorded of the processes that ran before: their names and files are unknown");
  }
  result_.bad_records = scan_.bad_records;
  result_.orphan_samples = scan_.orphan_samples;
}

int64_t Importer::RealtimeOffset() {
  const auto& clock = file_->features().clock;
  if (stamped_ && clock.has_value() && event_->clock_id == clock->clock_id &&
      clock->wall_clock_ns < kImportMaxTimeNs && clock->clock_ns < kImportMaxTimeNs) {
    return static_cast<int64_t>(clock->wall_clock_ns) - static_cast<int64_t>(clock->clock_ns);
  }
  const int64_t modified = file_->modified_unix_seconds();
  if (modified <= 0 || modified > INT64_MAX / kNsPerSecond / 2) {
    Remark("the recording does not tell the date: times count from the start of its clock");
    return 0;
  }
  Remark("the recording does not tell the date: it is taken from the time its file was last written");
  return modified * kNsPerSecond - static_cast<int64_t>(end_ns_);
}

proto::Header Importer::MakeHeader() const {
  const perf::PerfDataFeatures& features = file_->features();
  proto::Header header;
  header.set_producer(options_.producer);
  header.set_start_ns(start_ns_);
  header.set_realtime_offset_ns(realtime_offset_ns_);
  proto::Host& host = *header.mutable_host();
  host.set_hostname(features.hostname);
  host.set_kernel_release(features.os_release);
  host.set_kernel_build_id(scan_.kernel_build_id);
  host.set_machine(features.machine);
  host.set_cpu_model(features.cpu_description);
  host.set_cpu_count(features.cpus_available);
  proto::Event& event = *header.mutable_event();
  event.set_name(event_->plain_name());
  event.set_frequency_hz(static_cast<uint32_t>(std::min<uint64_t>(event_->frequency_hz, UINT32_MAX)));
  event.set_period(event_->period);
  event.set_max_stack(merge_.max_stack);
  header.mutable_mode()->set_kind(static_cast<proto::Mode::Kind>(result_.mode));
  header.mutable_mode()->set_reason(result_.mode_reason);
  if (result_.mode != ModeKind::kPlainLinux) {
    header.mutable_hypervisor()->set_unavailable_reason(
        "imported from a recording of perf, which tells nothing of Xen");
  }
  header.set_source(proto::Header::IMPORTED);
  const std::string& name = options_.input == "-" ? file_->name() : options_.input;
  const size_t end = name.find_last_not_of('/');
  const size_t slash = name.rfind('/', end);
  header.set_source_name(name.substr(slash == std::string::npos ? 0 : slash + 1, end - (slash + 1) + 1));
  const auto add_notes = [&](const std::vector<std::string>& texts, proto::Note::Severity severity) {
    for (const std::string& text : texts) {
      proto::Note& note = *header.add_notes();
      note.set_severity(severity);
      note.set_text(text);
    }
  };
  add_notes(result_.warnings, proto::Note::WARNING);
  add_notes(result_.remarks, proto::Note::INFO);
  return header;
}

merge::BatchBuilder& Importer::BuilderAt(uint64_t time_ns, uint32_t cpu) {
  const uint64_t index = time_ns <= start_ns_ ? 0 : (time_ns - start_ns_) / block_ns_;
  auto& builder = blocks_[index].cpus[cpu];
  if (builder == nullptr) builder = std::make_unique<merge::BatchBuilder>(cpu, merge_);
  return *builder;
}

void Importer::TakeSample(const perf::DataRecord& record) {
  if (record.event != event_) return;
  perf::Sample sample;
  // What contradicts itself was counted by the scan already.
  if (!perf::DecodeSample(record.bytes, event_->layout, &sample).ok() || sample.time_ns >= kImportMaxTimeNs ||
      (sample.cpu != ~0u && sample.cpu >= kImportMaxCpus)) {
    return;
  }
  if (!stamped_) {
    sample.time_ns = ordinal_;
  } else if (sample.time_ns == 0) {
    sample.time_ns = start_ns_;
  }
  latest_ns_ = std::max(latest_ns_, sample.time_ns);
  BuilderAt(sample.time_ns, sample.cpu == ~0u ? 0 : sample.cpu).AddSample(sample);
}

void Importer::TakeSideband(const perf::DataRecord& record) {
  SidebandEvent event;
  if (!perf::DecodeSideband(record.bytes, record.event->layout, &event).ok() ||
      event.time_ns >= kImportMaxTimeNs) {
    return;
  }
  using Type = SidebandEvent::Type;
  const bool unstamped = event.time_ns == 0;
  switch (event.type) {
    case Type::kMmap:
      if (event.mode != perf::CpuMode::kUser) return;
      build_ids_->Complete(&event);
      [[fallthrough]];
    case Type::kComm:
    case Type::kFork:
    case Type::kExit:
    case Type::kKsymbol:
      if (stamped_ && unstamped) return;  // the scan took it
      break;
    case Type::kLost:
    case Type::kLostSamples:
      if (stamped_ && unstamped) {
        // perf's own sum of each event at the end; it holds what the kernel told at its time as well.
        if (record.event == event_) lost_in_all_ += event.count;
        return;
      }
      result_.lost_records += event.count;
      break;
    case Type::kThrottle:
    case Type::kUnthrottle:
      if (record.event != event_) return;
      break;
    case Type::kOther:
      return;
    case Type::kUnknown:
      ++unknown_records_[record.type];
      return;
  }
  if (!stamped_) event.time_ns = ordinal_;
  latest_ns_ = std::max(latest_ns_, event.time_ns);
  const uint32_t cpu = event.cpu < kImportMaxCpus ? event.cpu : 0;
  event.cpu = cpu;
  BuilderAt(event.time_ns, cpu).AddSideband(std::move(event));
}

absl::Status Importer::Feed() {
  for (SidebandEvent& symbol : scan_.kernel_symbols) {
    symbol.time_ns = start_ns_;
    symbol.cpu = 0;
    BuilderAt(start_ns_, 0).AddSideband(symbol);
  }
  perf::DataRecord record;
  while (true) {
    absl::StatusOr<bool> got = file_->Next(&record);
    if (!got.ok()) return got.status();
    if (!*got) break;
    ++ordinal_;
    if (record.event == nullptr) continue;
    if (record.type == perf::kRecordSample) {
      TakeSample(record);
    } else {
      TakeSideband(record);
    }
    if (latest_ns_ > lateness_ns_) {
      if (absl::Status status = WriteBlocks(latest_ns_ - lateness_ns_); !status.ok()) return status;
    }
  }
  if (lost_in_all_ > result_.lost_records) {
    assembler_.AddIncident(
        {merge::Incident::Kind::kLost, -1, start_ns_, end_ns_, lost_in_all_ - result_.lost_records, ""});
    result_.lost_records = lost_in_all_;
  }
  for (const auto& [type, count] : unknown_records_) {
    assembler_.AddIncident({merge::Incident::Kind::kUnknownRecord, -1, start_ns_, end_ns_, count,
                            absl::StrCat("record type ", type)});
  }
  if (scan_.bad_records > 0) {
    assembler_.AddIncident(
        {merge::Incident::Kind::kBadRecord, -1, start_ns_, end_ns_, scan_.bad_records, ""});
  }
  return WriteBlocks(UINT64_MAX);
}

absl::Status Importer::WriteBlocks(uint64_t until_ns) {
  while (!blocks_.empty()) {
    const uint64_t index = blocks_.begin()->first;
    if (until_ns != UINT64_MAX && start_ns_ + (index + 1) * block_ns_ > until_ns) break;
    Block block = std::move(blocks_.begin()->second);
    blocks_.erase(blocks_.begin());
    if (absl::Status status = WriteBlock(index, std::move(block)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Importer::WriteBlock(uint64_t index, Block block) {
  const uint64_t block_end = std::min(start_ns_ + (index + 1) * block_ns_, end_ns_);
  for (auto& [cpu, builder] : block.cpus) assembler_.AddBatch(builder->Take(0, assembler_.TakeRecycled()));
  // A CPU that gave nothing in this block was sampled all the same.
  for (uint32_t cpu : event_scan_->cpus) {
    merge::CpuBatch sampled;
    sampled.cpu = cpu;
    sampled.drained_until_ns = std::min(block_end, event_scan_->last_ns + 1);
    assembler_.AddBatch(std::move(sampled));
  }
  window_.Clear();
  window_.start_ns = start_ns_ + index * block_ns_;
  assembler_.Advance(block_end, &window_);
  const merge::Tables& tables = assembler_.tables();
  for (const merge::CpuColumns& cpu : window_.cpus) {
    for (uint32_t stack : cpu.stack) {
      ++result_.samples_by_origin[static_cast<size_t>(tables.stacks[stack].origin)];
    }
    result_.samples += cpu.stack.size();
  }
  return writer_->WriteBlock(window_, tables, realtime_offset_ns_);
}

absl::StatusOr<ImportResult> Importer::Run() {
  absl::StatusOr<std::unique_ptr<perf::PerfDataFile>> file = perf::PerfDataFile::Open(options_.input);
  if (!file.ok()) return file.status();
  file_ = *std::move(file);
  absl::StatusOr<ImportScan> scan = ScanPerfData(*file_);
  if (!scan.ok()) return scan.status();
  scan_ = *std::move(scan);
  result_.warnings = file_->problems();
  if (absl::Status status = ChooseEvent(); !status.ok()) return status;

  stamped_ = (event_->layout.sample_type & perf::kSampleTime) != 0 && scan_.last_ns > 0;
  start_ns_ = stamped_ ? scan_.first_ns : 1;
  end_ns_ = (stamped_ ? scan_.last_ns : scan_.records) + 1;
  lateness_ns_ = stamped_ ? scan_.lateness_ns : 0;
  block_ns_ = std::max({kBlockNs, (end_ns_ - start_ns_) / kMaxBlocks, lateness_ns_ / kMaxOpenBlocks});
  result_.cpus = event_scan_->cpus.size();
  result_.duration_ns = stamped_ ? event_scan_->last_ns - event_scan_->first_ns : 0;

  symbols::LiveSymbolizerOptions symbol_options;
  symbol_options.live = false;
  symbol_options.kallsyms_path = options_.kallsyms;
  symbol_options.xen_symbol_files = options_.xen_symbols;
  symbol_options.symbol_roots = options_.symbol_roots;
  symbolizer_ = std::make_unique<symbols::LiveSymbolizer>(std::move(symbol_options));
  build_ids_ = std::make_unique<BuildIdTable>(file_->features().build_ids);
  FindMode();
  NoteWhatIsMissing();
  realtime_offset_ns_ = RealtimeOffset();
  SetUpAssembler();

  absl::StatusOr<std::unique_ptr<chunk::ChunkWriter>> writer =
      chunk::ChunkWriter::Create(options_.output, MakeHeader(), {.replace = true});
  if (!writer.ok()) return writer.status();
  writer_ = *std::move(writer);
  absl::Status status = Feed();
  const uint64_t expected = event_scan_->samples;
  if (status.ok() && result_.samples != expected) {
    status = absl::InternalError(
        absl::StrCat(file_->name(), ": ", expected, " samples read, but ", result_.samples, " written"));
  }
  if (status.ok()) status = writer_->Seal(assembler_.tables(), symbolizer_.get(), proto::Trailer::IMPORTED);
  if (!status.ok()) {
    writer_.reset();
    unlink(absl::StrCat(options_.output, ".partial").c_str());
    return status;
  }
  return std::move(result_);
}

}  // namespace

absl::StatusOr<ImportResult> ImportPerfData(const ImportOptions& options) { return Importer(options).Run(); }

}  // namespace xenprof::client
