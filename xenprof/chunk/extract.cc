#include "xenprof/chunk/extract.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "xenprof/chunk/partial_file.h"
#include "xenprof/chunk/table_merger.h"

namespace xenprof::chunk {
namespace {

merge::Incident FromProto(const proto::Incident& incident) {
  merge::Incident out{};
  out.kind = static_cast<merge::Incident::Kind>(incident.kind());
  out.cpu = static_cast<int64_t>(incident.cpu_plus_one()) - 1;
  out.start_ns = incident.start_ns();
  out.end_ns = incident.end_ns();
  out.count = incident.count();
  out.text = incident.text();
  return out;
}

class Extractor {
 public:
  Extractor(uint64_t start_ns, uint64_t end_ns, const std::string& path, const WriterOptions& options)
      : start_ns_(start_ns), end_ns_(end_ns), path_(path), options_(options) {}

  absl::Status AddInput(ChunkReader* reader);
  absl::StatusOr<ExtractReport> Finish(const std::string& covered);
  // Removes what was begun.
  void Abandon() {
    if (writer_ == nullptr) return;
    writer_.reset();
    PartialFile::Remove(absl::StrCat(path_, kPartialSuffix));
  }

 private:
  absl::Status AddBlock(const ChunkReader& reader, const ChunkDecoder& decoder, const proto::Block& block);
  void FillWindow(const ChunkDecoder& decoder, const proto::Block& block);
  void AddIncident(const proto::Incident& incident);
  bool InWindow(uint64_t time_ns) const { return time_ns >= start_ns_ && time_ns < end_ns_; }

  const uint64_t start_ns_, end_ns_;
  const std::string path_;
  const WriterOptions options_;

  TableMerger merger_;
  std::vector<std::unique_ptr<ChunkDecoder>> decoders_;
  std::unique_ptr<ChunkWriter> writer_;
  std::string mode_, facts_;  // last written, serialised
  uint32_t frequency_hz_ = 0;

  merge::Window window_;                      // reused
  std::vector<merge::Incident> waiting_;      // for the next block
  std::optional<merge::Incident> frequency_;  // the last change before the window
  DomainColumns domains_;
  int64_t realtime_offset_ns_ = 0;
  ExtractReport report_;
};

void Extractor::AddIncident(const proto::Incident& incident) {
  merge::Incident out = FromProto(incident);
  if (out.kind == merge::Incident::Kind::kFrequency) {
    // Holds from its start on: of those before the window the last is still in force.
    if (out.start_ns < start_ns_) {
      out.start_ns = start_ns_;
      out.end_ns = std::max(out.end_ns, start_ns_);
      frequency_ = std::move(out);
    } else if (out.start_ns < end_ns_) {
      waiting_.push_back(std::move(out));
    }
    return;
  }
  if (out.end_ns <= out.start_ns) {  // an instant
    if (InWindow(out.start_ns)) waiting_.push_back(std::move(out));
    return;
  }
  out.start_ns = std::max(out.start_ns, start_ns_);
  out.end_ns = std::min(out.end_ns, end_ns_);
  if (out.start_ns < out.end_ns) waiting_.push_back(std::move(out));
}

void Extractor::FillWindow(const ChunkDecoder& decoder, const proto::Block& block) {
  window_.start_ns = std::max(block.start_ns(), start_ns_);
  window_.end_ns = std::min(block.end_ns(), end_ns_);
  window_.cpus.clear();
  window_.incidents.clear();
  std::vector<std::vector<uint32_t>>& domain_columns = domains_.of_sample;
  domain_columns.clear();

  const auto column = [&](uint32_t cpu) {
    for (size_t i = 0; i < window_.cpus.size(); ++i) {
      if (window_.cpus[i].cpu == cpu) return i;
    }
    window_.cpus.emplace_back().cpu = cpu;
    domain_columns.emplace_back();
    return window_.cpus.size() - 1;
  };
  uint32_t current_cpu = ~0u;
  size_t current = 0;
  decoder.ForEachSample(block,
                        [&](uint32_t cpu, uint64_t time_ns, uint32_t stack, uint32_t task, uint32_t domain) {
                          if (!InWindow(time_ns)) return;
                          if (cpu != current_cpu) {
                            current = column(cpu);
                            current_cpu = cpu;
                          }
                          merge::CpuColumns& columns = window_.cpus[current];
                          columns.time_ns.push_back(time_ns);
                          columns.stack.push_back(merger_.Stack(stack));
                          columns.task.push_back(merger_.Task(task));
                          domain_columns[current].push_back(merger_.Domain(domain));
                        });
  // How much of a cut block a CPU was sampled is not known; the same share of each part is the best guess.
  const uint64_t length = block.end_ns() - block.start_ns();
  const uint64_t kept = window_.end_ns - std::min(window_.start_ns, window_.end_ns);
  for (const proto::CpuTime& time : block.cpu_time()) {
    const uint64_t sampled =
        length == 0
            ? 0
            : static_cast<uint64_t>(static_cast<unsigned __int128>(time.sampled_ns()) * kept / length);
    window_.cpus[column(time.cpu())].sampled_ns = sampled;
  }
}

absl::Status Extractor::AddBlock(const ChunkReader& reader, const ChunkDecoder& decoder,
                                 const proto::Block& block) {
  std::string mode = decoder.mode().SerializeAsString();
  std::string facts = decoder.hypervisor().SerializeAsString();
  if (writer_ == nullptr) {
    proto::Header header = reader.header();
    header.clear_chunk_id();
    header.set_source(proto::Header::EXTRACTED);
    header.set_start_ns(std::max(block.start_ns(), start_ns_));
    header.set_realtime_offset_ns(block.realtime_offset_ns());
    *header.mutable_mode() = decoder.mode();
    *header.mutable_hypervisor() = decoder.hypervisor();
    absl::StatusOr<std::unique_ptr<ChunkWriter>> writer =
        ChunkWriter::Create(path_, std::move(header), options_);
    if (!writer.ok()) return writer.status();
    writer_ = *std::move(writer);
    frequency_hz_ = reader.header().event().frequency_hz();
    report_.start_ns = UINT64_MAX;
  } else {
    if (mode != mode_) writer_->SetMode(decoder.mode());
    if (facts != facts_) writer_->SetHypervisorFacts(decoder.hypervisor());
  }
  mode_ = std::move(mode);
  facts_ = std::move(facts);

  merger_.TakeFixedEntries();
  FillWindow(decoder, block);
  if (frequency_.has_value()) window_.incidents.push_back(*std::exchange(frequency_, std::nullopt));
  window_.incidents.insert(window_.incidents.end(), std::make_move_iterator(waiting_.begin()),
                           std::make_move_iterator(waiting_.end()));
  waiting_.clear();
  domains_.domains = merger_.domains();
  realtime_offset_ns_ = block.realtime_offset_ns();
  report_.start_ns = std::min(report_.start_ns, window_.start_ns);
  report_.end_ns = std::max(report_.end_ns, window_.end_ns);
  return writer_->WriteBlock(window_, merger_.tables(), realtime_offset_ns_, &domains_);
}

absl::Status Extractor::AddInput(ChunkReader* reader) {
  reader->SetWindow(start_ns_, end_ns_);
  decoders_.push_back(
      std::make_unique<ChunkDecoder>(reader->header(), ChunkDecoder::Options{reader->salvaging()}));
  ChunkDecoder& decoder = *decoders_.back();
  merger_.Begin(&decoder);
  if (writer_ != nullptr && reader->header().event().frequency_hz() != frequency_hz_) {
    frequency_hz_ = reader->header().event().frequency_hz();
    merge::Incident change{};
    change.kind = merge::Incident::Kind::kFrequency;
    change.start_ns = change.end_ns = std::clamp(reader->header().start_ns(), start_ns_, end_ns_ - 1);
    change.count = frequency_hz_;
    waiting_.push_back(std::move(change));
  }
  proto::Payload payload;
  while (true) {
    absl::StatusOr<bool> more = reader->Next(&payload);
    if (!more.ok()) return more.status();
    if (!*more) break;
    absl::Status status = decoder.Add(payload);
    if (!status.ok()) {
      if (!reader->salvaging()) return reader->ErrorHere(status.message());
      reader->ReportDamage(std::string(status.message()));
      continue;
    }
    if (!payload.has_block()) continue;
    const proto::Block& block = payload.block();
    for (const proto::Incident& incident : block.incidents()) AddIncident(incident);
    if (block.end_ns() <= start_ns_ || block.start_ns() >= end_ns_) continue;
    status = AddBlock(*reader, decoder, block);
    if (!status.ok()) return status;
  }
  for (const Damage& damage : reader->damage()) {
    report_.damage.push_back(absl::StrCat(reader->name(), ": offset ", damage.offset, ": ", damage.reason));
  }
  return absl::OkStatus();
}

absl::StatusOr<ExtractReport> Extractor::Finish(const std::string& covered) {
  if (writer_ == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("nothing was sampled between ", start_ns_, " and ", end_ns_, " ns; ", covered));
  }
  if (!waiting_.empty()) {  // told by blocks behind the window
    window_.cpus.clear();
    domains_.of_sample.clear();
    window_.start_ns = window_.end_ns = report_.end_ns;
    window_.incidents = std::move(waiting_);
    absl::Status status = writer_->WriteBlock(window_, merger_.tables(), realtime_offset_ns_, &domains_);
    if (!status.ok()) return status;
  }
  absl::Status status = writer_->Seal(merger_.tables(), merger_.names(), proto::Trailer::REQUESTED);
  if (!status.ok()) return status;
  report_.samples = writer_->samples();
  report_.bytes = writer_->bytes();
  return report_;
}

}  // namespace

absl::StatusOr<ExtractReport> Extract(std::vector<std::unique_ptr<ChunkReader>> inputs, uint64_t start_ns,
                                      uint64_t end_ns, const std::string& path,
                                      const WriterOptions& options) {
  if (inputs.empty()) return absl::InvalidArgumentError("no chunk to extract from");
  if (start_ns >= end_ns) {
    return absl::InvalidArgumentError(
        absl::StrCat("the window from ", start_ns, " to ", end_ns, " ns is empty"));
  }
  std::stable_sort(inputs.begin(), inputs.end(), [](const auto& a, const auto& b) {
    return a->header().start_ns() < b->header().start_ns();
  });
  const proto::Host& host = inputs[0]->header().host();
  for (const auto& input : inputs) {
    const proto::Host& other = input->header().host();
    if (other.boot_id() != host.boot_id() || other.hostname() != host.hostname()) {
      return absl::InvalidArgumentError(absl::StrCat(
          inputs[0]->name(), " is of host ", host.hostname(), ", boot ", host.boot_id(), "; ", input->name(),
          " is of host ", other.hostname(), ", boot ", other.boot_id(), ": their clocks cannot be compared"));
    }
  }
  Extractor extractor(start_ns, end_ns, path, options);
  absl::flat_hash_set<std::string> seen;
  uint64_t first_ns = UINT64_MAX, last_ns = 0;
  absl::Status status;
  for (auto& input : inputs) {
    if (!input->header().chunk_id().empty() && !seen.insert(input->header().chunk_id()).second) continue;
    if (absl::StatusOr<proto::Trailer> trailer = input->ReadTrailer(); trailer.ok()) {
      first_ns = std::min(first_ns, trailer->start_ns());
      last_ns = std::max(last_ns, trailer->end_ns());
      if (trailer->start_ns() >= end_ns || trailer->end_ns() <= start_ns) continue;
    }
    status = extractor.AddInput(input.get());
    if (!status.ok()) break;
  }
  if (status.ok()) {
    absl::StatusOr<ExtractReport> report =
        extractor.Finish(last_ns == 0 ? "the chunks are not complete"
                                      : absl::StrCat("the chunks cover ", first_ns, " to ", last_ns, " ns"));
    if (report.ok()) return report;
    status = report.status();
  }
  extractor.Abandon();
  return status;
}

}  // namespace xenprof::chunk
