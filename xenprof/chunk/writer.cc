#include "xenprof/chunk/writer.h"

#include <sys/random.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xenprof/chunk/block_encoder.h"
#include "xenprof/chunk/envelope.h"
#include "xenprof/chunk/partial_file.h"
#include "xenprof/chunk/seal.h"
#include "xenprof/chunk/totals.h"
#include "xenprof/chunk/utf8.h"

namespace xenprof::chunk {

class WriterMemory {
 public:
  BlockEncoder encoder;
  EnvelopeEncoder envelopes;
};

std::shared_ptr<WriterMemory> NewWriterMemory() { return std::make_shared<WriterMemory>(); }

namespace {

constexpr size_t kChunkIdBytes = 16;

merge::TableMarks MarksOf(const merge::Tables& tables) {
  return {.mappings = tables.mappings.size(),
          .tasks = tables.tasks.size(),
          .frames = tables.frames.size(),
          .nodes = tables.nodes.size(),
          .stacks = tables.stacks.size()};
}

class Writer : public ChunkWriter {
 public:
  Writer(std::unique_ptr<PartialFile> file, const proto::Header& header, const WriterOptions& options)
      : file_(std::move(file)),
        options_(options),
        memory_(options.memory != nullptr ? options.memory : NewWriterMemory()),
        encoder_(memory_->encoder),
        envelopes_(memory_->envelopes) {
    state_.start_ns = header.start_ns();
    state_.mode = header.mode();
  }

  absl::Status WriteHeader(const proto::Header& header) {
    proto::Payload payload;
    *payload.mutable_header() = header;
    std::string bytes;
    if (!payload.SerializeToString(&bytes)) return absl::InvalidArgumentError("header too large");
    absl::StatusOr<absl::string_view> envelope =
        envelopes_.Encode({bytes, {}}, {}, options_.compression_level);
    if (!envelope.ok()) return envelope.status();
    return file_->Append(*envelope);
  }

  absl::Status WriteBlock(const merge::Window& window, const merge::Tables& tables,
                          int64_t realtime_offset_ns, const DomainColumns* domains) override {
    const std::vector<BlockEncoder::Piece> pieces = BlockEncoder::Split(window);
    if (pieces.size() == 1) return WritePiece(window, pieces[0], tables, realtime_offset_ns, domains);
    // All of them or none.
    const uint64_t bytes = file_->bytes();
    const State before = state_;
    for (const BlockEncoder::Piece& piece : pieces) {
      absl::Status status = WritePiece(window, piece, tables, realtime_offset_ns, domains);
      if (status.ok()) continue;
      state_ = before;
      absl::Status cut = file_->CutBack(bytes);
      return cut.ok() ? status
                      : absl::Status(status.code(), absl::StrCat(status.message(), "; then ", cut.message()));
    }
    return absl::OkStatus();
  }

  void SetMode(const proto::Mode& mode) override {
    state_.new_mode = mode;
    MakeUtf8(&*state_.new_mode);
  }
  void SetHypervisorFacts(const proto::HypervisorFacts& facts) override {
    state_.new_facts = facts;
    MakeUtf8(&*state_.new_facts);
  }

  absl::Status Seal(const merge::Tables& tables, symbols::Symbolizer* symbolizer,
                    proto::Trailer::End end) override {
    if (file_->published()) {
      return absl::FailedPreconditionError(absl::StrCat(file_->path(), ": already sealed"));
    }
    // What no block refers to is not in the file and needs no name; blocks bring tables whole, so this is
    // rare.
    if (MarksOf(tables).frames == state_.marks.frames && MarksOf(tables).nodes == state_.marks.nodes &&
        MarksOf(tables).stacks == state_.marks.stacks && MarksOf(tables).mappings == state_.marks.mappings) {
      return SealFile(file_.get(), tables, symbolizer, state_.totals, state_.mode, end, options_);
    }
    return SealFile(file_.get(), Written(tables), symbolizer, state_.totals, state_.mode, end, options_);
  }

  uint64_t bytes() const override { return file_->bytes(); }
  uint64_t samples() const override { return state_.totals.samples(); }
  uint64_t start_ns() const override { return state_.start_ns; }
  const std::string& path() const override { return file_->path(); }

 private:
  // What a block that was written changes.
  struct State {
    merge::TableMarks marks;
    size_t domains_written = 0;
    Totals totals;
    uint64_t start_ns = 0;
    proto::Mode mode;  // of the last block written
    std::optional<proto::Mode> new_mode;
    std::optional<proto::HypervisorFacts> new_facts;
  };

  absl::Status WritePiece(const merge::Window& window, const BlockEncoder::Piece& piece,
                          const merge::Tables& tables, int64_t realtime_offset_ns,
                          const DomainColumns* domains) {
    const auto in_file = [this](const absl::Status& status) {
      return absl::Status(status.code(), absl::StrCat(file_->partial_path(), ": ", status.message()));
    };
    if (file_->published()) {
      return absl::FailedPreconditionError(absl::StrCat(file_->path(), ": already sealed"));
    }
    absl::Status status =
        encoder_.Encode(window, piece, tables, state_.marks, domains, state_.domains_written);
    if (!status.ok()) return in_file(status);
    proto::Block* block = encoder_.block();
    block->set_realtime_offset_ns(realtime_offset_ns);
    if (state_.new_mode.has_value()) *block->mutable_mode() = *state_.new_mode;
    if (state_.new_facts.has_value()) *block->mutable_hypervisor() = *state_.new_facts;
    if (!encoder_.Serialize()) return in_file(absl::ResourceExhaustedError("block too large to write"));
    absl::StatusOr<absl::string_view> envelope =
        envelopes_.Encode({encoder_.payload_bytes(), encoder_.payload_cuts()},
                          {encoder_.column_bytes(), encoder_.column_cuts()}, options_.compression_level);
    if (!envelope.ok()) return in_file(envelope.status());
    const uint64_t offset = file_->bytes();
    status = file_->Append(*envelope);
    if (!status.ok()) return status;

    state_.marks = MarksOf(tables);
    if (domains != nullptr) state_.domains_written = domains->domains.size();
    if (state_.new_mode.has_value()) state_.mode = *std::exchange(state_.new_mode, std::nullopt);
    state_.new_facts.reset();
    state_.totals.AddBlock(offset, block->start_ns(), block->end_ns(), realtime_offset_ns,
                           encoder_.samples());
    state_.totals.AddOrigins(encoder_.by_origin());
    for (const proto::CpuSamples& cpu : encoder_.columns().cpus()) {
      state_.totals.AddSamples(cpu.cpu(), static_cast<uint64_t>(cpu.stack_size()));
    }
    for (const proto::Incident& incident : block->incidents()) state_.totals.AddIncident(incident);
    if (state_.start_ns == 0) state_.start_ns = block->start_ns();
    return absl::OkStatus();
  }

  // The part of `tables` that is in the file.
  merge::Tables Written(const merge::Tables& tables) const {
    merge::Tables written = tables;
    written.mappings.resize(state_.marks.mappings);
    written.tasks.resize(state_.marks.tasks);
    written.frames.resize(state_.marks.frames);
    written.nodes.resize(state_.marks.nodes);
    written.stacks.resize(state_.marks.stacks);
    return written;
  }

  std::unique_ptr<PartialFile> file_;
  WriterOptions options_;
  const std::shared_ptr<WriterMemory> memory_;
  BlockEncoder& encoder_;
  EnvelopeEncoder& envelopes_;
  State state_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChunkWriter>> ChunkWriter::Create(const std::string& path,
                                                                 proto::Header header,
                                                                 const WriterOptions& options) {
  header.set_magic(kMagic.data(), kMagic.size());
  header.set_format_version(kFormatVersion);
  if (header.chunk_id().size() != kChunkIdBytes) {
    std::string* id = header.mutable_chunk_id();
    id->resize(kChunkIdBytes);
    if (getrandom(id->data(), id->size(), 0) != static_cast<ssize_t>(id->size())) {
      return FileError(path, "make an id", errno);
    }
  }
  MakeUtf8(&header);
  absl::StatusOr<std::unique_ptr<PartialFile>> file = PartialFile::Create(path, options.replace);
  if (!file.ok()) return file.status();
  const std::string partial = (*file)->partial_path();
  auto writer = std::make_unique<Writer>(*std::move(file), header, options);
  absl::Status status = writer->WriteHeader(header);
  if (!status.ok()) {
    writer.reset();
    PartialFile::Remove(partial);
    return status;
  }
  return writer;
}

}  // namespace xenprof::chunk
