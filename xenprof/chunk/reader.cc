#include "xenprof/chunk/reader.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xenprof/chunk/byte_source.h"
#include "xenprof/chunk/crc32c.h"
#include "xenprof/chunk/envelope.h"
#include "xenprof/chunk/partial_file.h"
#include "xenprof/chunk/payload_parser.h"

namespace xenprof::chunk {
namespace {

constexpr uint64_t kLengthBytes = 10;  // of a varint, at most
// Salvage gives up after looking at this many times the file's bytes in search of the next envelope: a file
// made to look like nested envelopes would take for ever.
constexpr uint64_t kSearchEffort = 8;

// What is wrong with the file's content, as opposed to a failing read.
absl::Status Content(absl::string_view reason) { return absl::DataLossError(reason); }

class Reader : public ChunkReader {
 public:
  Reader(std::unique_ptr<ByteSource> source, std::string name, const ReadOptions& options)
      : source_(std::move(source)), name_(std::move(name)), options_(options) {}

  absl::Status ReadHeader();

  const proto::Header& header() const override { return header_; }
  absl::StatusOr<bool> Next(proto::Payload* payload) override;
  absl::StatusOr<proto::Trailer> ReadTrailer() override;
  void SetWindow(uint64_t start_ns, uint64_t end_ns) override {
    window_start_ns_ = start_ns;
    window_end_ns_ = end_ns;
  }
  void ReportDamage(const std::string& reason) override {
    damage_.push_back({offset_, next_offset_ - offset_, reason});
  }
  absl::Status ErrorHere(absl::string_view reason) const override { return Error(offset_, reason); }
  uint64_t offset() const override { return offset_; }
  uint64_t next_offset() const override { return next_offset_; }
  uint64_t file_bytes() const override { return source_->size(); }
  const std::string& name() const override { return name_; }
  bool salvaging() const override { return options_.salvage; }
  const std::vector<Damage>& damage() const override { return damage_; }

 private:
  struct Located {
    Envelope envelope;
    uint64_t bytes;  // with the length in front
  };
  absl::Status Error(uint64_t offset, absl::string_view reason) const {
    return absl::DataLossError(absl::StrCat(name_, ": offset ", offset, ": ", reason));
  }
  // The envelope at `offset`, its checksum right. Valid until the next read.
  absl::StatusOr<Located> Locate(uint64_t offset);
  absl::Status Parse(const Envelope& envelope, bool without_columns, proto::Payload* payload);
  // Reads what is at next_offset_. `*bytes`: of the envelope, 0 when there is none.
  absl::Status ReadOne(proto::Payload* payload, uint64_t* bytes);
  // The offset of the next good envelope from `from` on, or the file's size.
  absl::StatusOr<uint64_t> FindNext(uint64_t from);
  // Whether an envelope of `length` bytes may begin with `start`.
  static bool LooksLikeEnvelope(absl::Span<const uint8_t> start, uint64_t length);
  absl::Status CheckHeader(const proto::Header& header) const;
  std::optional<proto::Trailer> FindTrailerAtEnd();

  std::unique_ptr<ByteSource> source_;
  std::string name_;
  ReadOptions options_;
  EnvelopeDecoder unpacker_;
  proto::Header header_;
  uint64_t offset_ = 0, next_offset_ = 0;
  uint64_t searched_ = 0;
  uint64_t window_start_ns_ = 0, window_end_ns_ = UINT64_MAX;
  bool trailer_seen_ = false;
  std::vector<Damage> damage_;
};

absl::StatusOr<Reader::Located> Reader::Locate(uint64_t offset) {
  absl::StatusOr<absl::Span<const uint8_t>> start = source_->Read(offset, kLengthBytes);
  if (!start.ok()) return start.status();
  const Varint length = ReadVarint(*start);
  if (length.bytes == 0) return Content("truncated: the file ends within a length");
  if (length.bytes < 0) return Content("malformed length");
  const uint64_t left = source_->size() - offset - static_cast<uint64_t>(length.bytes);
  if (length.value > left) {
    return Content(absl::StrCat("truncated: an envelope of ", length.value, " bytes, ", left, " bytes left"));
  }
  absl::StatusOr<absl::Span<const uint8_t>> bytes =
      source_->Read(offset + static_cast<uint64_t>(length.bytes), length.value);
  if (!bytes.ok()) return bytes.status();
  if (bytes->size() != length.value) return Content("truncated while it was being read");
  absl::StatusOr<Envelope> envelope = ParseEnvelope(*bytes);
  if (!envelope.ok()) return Content(envelope.status().message());
  const uint32_t crc = Crc32c(envelope->payload.data(), envelope->payload.size());
  if (crc != envelope->crc32c) {
    return Content(absl::StrCat("wrong checksum: 0x", absl::Hex(crc, absl::kZeroPad8), ", not 0x",
                                absl::Hex(envelope->crc32c, absl::kZeroPad8)));
  }
  return Located{*envelope, static_cast<uint64_t>(length.bytes) + length.value};
}

absl::Status Reader::Parse(const Envelope& envelope, bool without_columns, proto::Payload* payload) {
  absl::StatusOr<absl::string_view> bytes =
      unpacker_.Unpack(envelope, without_columns, options_.max_payload_bytes);
  if (!bytes.ok()) {
    return absl::IsInvalidArgument(bytes.status()) ? Content(bytes.status().message()) : bytes.status();
  }
  absl::Status parsed = ParsePayload(*bytes, payload);
  if (!parsed.ok()) return Content(parsed.message());
  if (payload->kind_case() == proto::Payload::KIND_NOT_SET)
    return Content("payload of a kind not known here");
  return absl::OkStatus();
}

absl::Status Reader::ReadOne(proto::Payload* payload, uint64_t* bytes) {
  *bytes = 0;
  absl::StatusOr<Located> located = Locate(next_offset_);
  if (!located.ok()) return located.status();
  *bytes = located->bytes;
  const bool everything = window_start_ns_ == 0 && window_end_ns_ == UINT64_MAX;
  const auto outside = [&] {
    return payload->has_block() &&
           (payload->block().end_ns() <= window_start_ns_ || payload->block().start_ns() >= window_end_ns_);
  };
  if (!everything && located->envelope.column_bytes != 0) {
    absl::Status status = Parse(located->envelope, true, payload);
    if (!status.ok() || outside()) return status;
  }
  absl::Status status = Parse(located->envelope, false, payload);
  if (status.ok() && !everything && outside()) payload->mutable_block()->clear_cpus();
  return status;
}

absl::StatusOr<bool> Reader::Next(proto::Payload* payload) {
  while (next_offset_ < source_->size()) {
    uint64_t bytes = 0;
    absl::Status status = ReadOne(payload, &bytes);
    if (status.ok() && trailer_seen_) status = Content("something comes behind the trailer");
    if (status.ok() && payload->has_header()) status = Content("a second header");
    if (status.ok()) {
      offset_ = next_offset_;
      next_offset_ += bytes;
      if (payload->has_trailer()) trailer_seen_ = true;
      return true;
    }
    if (!absl::IsDataLoss(status)) return status;
    if (!options_.salvage) return Error(next_offset_, status.message());
    uint64_t next = next_offset_ + bytes;
    if (bytes == 0) {
      absl::StatusOr<uint64_t> found = FindNext(next_offset_ + 1);
      if (!found.ok()) return found.status();
      next = *found;
    }
    damage_.push_back({next_offset_, next - next_offset_, std::string(status.message())});
    next_offset_ = next;
  }
  return false;
}

// Keys of known fields: the first one rules out nearly everything; the payload's place in the envelope the
// rest.
bool Reader::LooksLikeEnvelope(absl::Span<const uint8_t> start, uint64_t length) {
  uint64_t at = 0;
  while (at < length && at < start.size()) {
    const uint8_t key = start[at++];
    const absl::Span<const uint8_t> rest = start.subspan(std::min<uint64_t>(at, start.size()));
    if (key == 0x0d) {  // crc32c
      at += 4;
    } else if (key == 0x10 || key == 0x20 || key == 0x28) {  // codec, uncompressed_size, column_bytes
      const Varint value = ReadVarint(rest);
      if (value.bytes <= 0) return value.bytes == 0 && rest.size() < kLengthBytes;
      at += static_cast<uint64_t>(value.bytes);
    } else if (key == 0x1a) {  // payload
      const Varint value = ReadVarint(rest);
      if (value.bytes <= 0) return value.bytes == 0 && rest.size() < kLengthBytes;
      at += static_cast<uint64_t>(value.bytes);
      return value.value != 0 && value.value <= length && at + value.value <= length;
    } else {
      return false;
    }
  }
  return at < length;
}

absl::StatusOr<uint64_t> Reader::FindNext(uint64_t from) {
  constexpr uint64_t kStretch = uint64_t{1} << 18, kStartBytes = 64;
  const uint64_t size = source_->size();
  const uint64_t effort = kSearchEffort * size + (uint64_t{1} << 20);
  std::vector<uint64_t> candidates;
  for (uint64_t base = from; base < size; base += kStretch) {
    absl::StatusOr<absl::Span<const uint8_t>> stretch = source_->Read(base, kStretch + kStartBytes);
    if (!stretch.ok()) return stretch.status();
    candidates.clear();
    for (uint64_t i = 0; i < std::min<uint64_t>(kStretch, stretch->size()); ++i) {
      const absl::Span<const uint8_t> here = stretch->subspan(i, kStartBytes);
      const Varint length = ReadVarint(here.first(std::min<size_t>(here.size(), kLengthBytes)));
      if (length.bytes <= 0 || length.value == 0) continue;
      const uint64_t begin = base + i + static_cast<uint64_t>(length.bytes);
      if (length.value > size - begin) continue;
      if (LooksLikeEnvelope(here.subspan(static_cast<size_t>(length.bytes)), length.value)) {
        candidates.push_back(base + i);
      }
    }
    for (const uint64_t candidate : candidates) {
      absl::StatusOr<Located> located = Locate(candidate);
      if (located.ok()) return candidate;
      if (!absl::IsDataLoss(located.status())) return located.status();
      const Varint length = ReadVarint(*source_->Read(candidate, kLengthBytes));
      searched_ += length.value;
      if (searched_ > effort) return size;
    }
  }
  return size;
}

absl::Status Reader::CheckHeader(const proto::Header& header) const {
  if (header.magic() != kMagic) return Content("not a xenprof chunk: its header has another magic");
  if (header.format_version() > kFormatVersion) {
    return absl::UnimplementedError(absl::StrCat(name_, ": offset 0: format version ",
                                                 header.format_version(), ", written by ", header.producer(),
                                                 "; this program reads up to ", kFormatVersion));
  }
  if (header.format_version() == 0) return Content("format version 0 does not exist");
  return absl::OkStatus();
}

absl::Status Reader::ReadHeader() {
  if (source_->size() == 0) {
    if (!options_.salvage) return Error(0, "empty file");
    damage_.push_back({0, 0, "empty file"});
    header_.set_magic(kMagic.data(), kMagic.size());
    return absl::OkStatus();
  }
  proto::Payload payload;
  uint64_t bytes = 0;
  absl::Status status = ReadOne(&payload, &bytes);
  if (absl::IsDataLoss(status) && bytes == 0) {
    status = Content(absl::StrCat("not a xenprof chunk, or a damaged one: ", status.message()));
  }
  if (status.ok()) {
    status = payload.has_header() ? CheckHeader(payload.header())
                                  : Content("the file does not begin with a header");
  }
  if (status.ok()) {
    header_ = std::move(*payload.mutable_header());
    next_offset_ = bytes;
    return status;
  }
  if (!absl::IsDataLoss(status)) return status;
  if (!options_.salvage) return Error(0, status.message());
  header_.set_magic(kMagic.data(), kMagic.size());
  if (bytes != 0 && !payload.has_header() && payload.kind_case() != proto::Payload::KIND_NOT_SET) {
    damage_.push_back({0, 0, std::string(status.message())});  // a good payload: Next returns it
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> next = bytes != 0 ? bytes : FindNext(1);
  if (!next.ok()) return next.status();
  damage_.push_back({0, *next, std::string(status.message())});
  next_offset_ = *next;
  return absl::OkStatus();
}

// Looks for the envelope that ends where the file does, which saves a walk over all of them. Says nothing
// when it finds no trailer.
std::optional<proto::Trailer> Reader::FindTrailerAtEnd() {
  constexpr uint64_t kTailBytes = uint64_t{1} << 16;
  const uint64_t size = source_->size();
  const uint64_t base = size - std::min(size, kTailBytes);
  absl::StatusOr<absl::Span<const uint8_t>> tail = source_->Read(base, size - base);
  if (!tail.ok()) return std::nullopt;
  const std::vector<uint8_t> copy(tail->begin(), tail->end());  // Locate reads, too
  for (size_t i = copy.size(); i-- > 0;) {
    const absl::Span<const uint8_t> here = absl::MakeConstSpan(copy).subspan(i);
    const Varint length = ReadVarint(here.first(std::min<size_t>(here.size(), kLengthBytes)));
    if (length.bytes <= 0 || length.value != here.size() - static_cast<size_t>(length.bytes) ||
        !LooksLikeEnvelope(here.subspan(static_cast<size_t>(length.bytes)), length.value)) {
      continue;
    }
    absl::StatusOr<Located> located = Locate(base + i);
    proto::Payload payload;
    if (located.ok() && Parse(located->envelope, true, &payload).ok() && payload.has_trailer()) {
      return std::move(*payload.mutable_trailer());
    }
  }
  return std::nullopt;
}

absl::StatusOr<proto::Trailer> Reader::ReadTrailer() {
  if (std::optional<proto::Trailer> trailer = FindTrailerAtEnd(); trailer.has_value())
    return *std::move(trailer);
  uint64_t last = 0;
  for (uint64_t at = 0; at < source_->size();) {
    absl::StatusOr<absl::Span<const uint8_t>> start = source_->Read(at, kLengthBytes);
    if (!start.ok()) return start.status();
    const Varint length = ReadVarint(*start);
    if (length.bytes <= 0 || length.value > source_->size() - at - static_cast<uint64_t>(length.bytes)) {
      return absl::NotFoundError(absl::StrCat(name_, ": offset ", at, ": truncated: no trailer"));
    }
    last = at;
    at += static_cast<uint64_t>(length.bytes) + length.value;
  }
  absl::StatusOr<Located> located = Locate(last);
  if (!located.ok()) {
    return absl::IsDataLoss(located.status()) ? Error(last, located.status().message()) : located.status();
  }
  proto::Payload payload;
  absl::Status status = Parse(located->envelope, true, &payload);
  if (!status.ok()) return absl::IsDataLoss(status) ? Error(last, status.message()) : status;
  if (!payload.has_trailer())
    return absl::NotFoundError(absl::StrCat(name_, ": no trailer: never completed"));
  return std::move(*payload.mutable_trailer());
}

absl::StatusOr<std::unique_ptr<ChunkReader>> Start(std::unique_ptr<ByteSource> source,
                                                   const std::string& name, const ReadOptions& options) {
  auto reader = std::make_unique<Reader>(std::move(source), name, options);
  absl::Status status = reader->ReadHeader();
  if (!status.ok()) return status;
  return reader;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChunkReader>> ChunkReader::Open(const std::string& path,
                                                               const ReadOptions& options) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError(path, "open", errno);
  return FromDescriptor(fd, path, options);
}

absl::StatusOr<std::unique_ptr<ChunkReader>> ChunkReader::FromDescriptor(int fd, const std::string& name,
                                                                         const ReadOptions& options) {
  absl::StatusOr<std::unique_ptr<ByteSource>> source = ByteSource::FromDescriptor(UniqueFd(fd), name);
  if (!source.ok()) return source.status();
  return Start(*std::move(source), name, options);
}

absl::StatusOr<std::unique_ptr<ChunkReader>> ChunkReader::FromBytes(std::string bytes,
                                                                    const std::string& name,
                                                                    const ReadOptions& options) {
  return Start(ByteSource::FromBytes(std::move(bytes)), name, options);
}

}  // namespace xenprof::chunk
