#include "xenprof/chunk/envelope.h"

#include <zstd.h>

#include <algorithm>
#include <new>

#include "absl/strings/str_cat.h"
#include "chunk.pb.h"
#include "xenprof/chunk/crc32c.h"

namespace xenprof::chunk {
namespace {

// Keys of Envelope's fields: number << 3 | wire type (protobuf's encoding guide).
constexpr uint8_t kVarintType = 0, kFixed64Type = 1, kBytesType = 2, kFixed32Type = 5;
constexpr uint8_t kCrcKey = 1 << 3 | kFixed32Type;
constexpr uint8_t kCodecKey = 2 << 3 | kVarintType;
constexpr uint8_t kPayloadKey = 3 << 3 | kBytesType;
constexpr uint8_t kUncompressedSizeKey = 4 << 3 | kVarintType;
constexpr uint8_t kColumnBytesKey = 5 << 3 | kVarintType;

void AppendFixed32(uint32_t value, std::string* out) {
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(value >> shift & 0xff));
}

absl::Status ZstdError(absl::string_view what, size_t code) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", ZSTD_getErrorName(code)));
}

}  // namespace

Varint ReadVarint(absl::Span<const uint8_t> bytes) {
  Varint result;
  for (size_t i = 0; i < 10; ++i) {
    if (i == bytes.size()) return {0, 0};
    if (i == 9 && bytes[i] > 1) return {0, -1};
    result.value |= static_cast<uint64_t>(bytes[i] & 0x7f) << (7 * i);
    if ((bytes[i] & 0x80) == 0) {
      result.bytes = static_cast<int>(i) + 1;
      return result;
    }
  }
  return {0, -1};
}

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

absl::StatusOr<Envelope> ParseEnvelope(absl::Span<const uint8_t> bytes) {
  Envelope envelope;
  uint32_t seen = 0;  // bit: field number
  const auto malformed = [] { return absl::InvalidArgumentError("malformed envelope"); };
  while (!bytes.empty()) {
    const Varint key = ReadVarint(bytes);
    if (key.bytes <= 0 || key.value >> 3 == 0 || key.value > 0xffffffff) return malformed();
    bytes.remove_prefix(key.bytes);
    const uint64_t field = key.value >> 3;
    if (field <= 5) {
      if ((seen >> field & 1) != 0)
        return absl::InvalidArgumentError("malformed envelope: a field comes twice");
      seen |= 1u << field;
    }
    switch (key.value & 7) {
      case kVarintType: {
        const Varint value = ReadVarint(bytes);
        if (value.bytes <= 0) return malformed();
        bytes.remove_prefix(value.bytes);
        if (key.value == kCodecKey) envelope.codec = value.value;
        if (key.value == kUncompressedSizeKey) envelope.uncompressed_size = value.value;
        if (key.value == kColumnBytesKey) envelope.column_bytes = value.value;
        break;
      }
      case kFixed64Type:
        if (bytes.size() < 8) return malformed();
        bytes.remove_prefix(8);
        break;
      case kFixed32Type:
        if (bytes.size() < 4) return malformed();
        if (key.value == kCrcKey) {
          for (int i = 0; i < 4; ++i) envelope.crc32c |= static_cast<uint32_t>(bytes[i]) << (8 * i);
        }
        bytes.remove_prefix(4);
        break;
      case kBytesType: {
        const Varint length = ReadVarint(bytes);
        if (length.bytes <= 0) return malformed();
        bytes.remove_prefix(length.bytes);
        if (length.value > bytes.size()) return malformed();
        if (key.value == kPayloadKey) envelope.payload = bytes.first(length.value);
        bytes.remove_prefix(length.value);
        break;
      }
      default:
        return malformed();
    }
  }
  if (envelope.payload.empty()) return absl::InvalidArgumentError("envelope without payload");
  if (envelope.codec == proto::Envelope::STORED) {
    if (envelope.uncompressed_size != 0 || envelope.column_bytes != 0) {
      return absl::InvalidArgumentError("envelope contradicts itself: stored, yet with a size to unpack to");
    }
  } else if (envelope.codec == proto::Envelope::ZSTD) {
    if (envelope.uncompressed_size == 0) {
      return absl::InvalidArgumentError("envelope contradicts itself: compressed, yet without a size");
    }
    if (envelope.column_bytes >= envelope.payload.size()) {
      return absl::InvalidArgumentError(absl::StrCat("envelope contradicts itself: ", envelope.column_bytes,
                                                     " bytes of columns in a payload of ",
                                                     envelope.payload.size()));
    }
  } else {
    return absl::InvalidArgumentError(absl::StrCat("unknown codec ", envelope.codec));
  }
  return envelope;
}

EnvelopeEncoder::EnvelopeEncoder() : context_(ZSTD_createCCtx()) {}
EnvelopeEncoder::~EnvelopeEncoder() { ZSTD_freeCCtx(context_); }

// Appends one frame to compressed_.
absl::Status EnvelopeEncoder::Compress(const Part& part, int level) {
  const absl::string_view input = part.bytes;
  const absl::Span<const size_t> ends = part.cuts;
  if (context_ == nullptr) return absl::ResourceExhaustedError("no memory for zstd");
  const auto failed = [](size_t code) {
    return absl::ResourceExhaustedError(absl::StrCat("zstd: ", ZSTD_getErrorName(code)));
  };
  ZSTD_CCtx_reset(context_, ZSTD_reset_session_only);
  size_t code = ZSTD_CCtx_setParameter(context_, ZSTD_c_compressionLevel, level);
  if (ZSTD_isError(code)) return failed(code);
  code = ZSTD_CCtx_setPledgedSrcSize(context_, input.size());
  if (ZSTD_isError(code)) return failed(code);
  const size_t before = compressed_.size();
  // A flush costs up to a block header and a table.
  compressed_.resize(before + ZSTD_compressBound(input.size()) + 512 * (ends.size() + 1));
  ZSTD_outBuffer out{compressed_.data() + before, compressed_.size() - before, 0};
  ZSTD_inBuffer in{input.data(), 0, 0};
  for (size_t i = 0; i <= ends.size(); ++i) {
    const bool last = i == ends.size();
    in.size = last ? input.size() : ends[i];
    do {
      code = ZSTD_compressStream2(context_, &out, &in, last ? ZSTD_e_end : ZSTD_e_flush);
      if (ZSTD_isError(code)) return failed(code);
      if (code != 0 && out.pos == out.size) {
        compressed_.resize(compressed_.size() * 2);
        out.dst = compressed_.data() + before;
        out.size = compressed_.size() - before;
      }
    } while (code != 0);
  }
  compressed_.resize(before + out.pos);
  return absl::OkStatus();
}

absl::StatusOr<absl::string_view> EnvelopeEncoder::Encode(const Part& payload, const Part& columns,
                                                          int level) {
  compressed_.clear();
  absl::Status status = Compress(payload, level);
  if (!status.ok()) return status;
  size_t column_bytes = 0;
  if (!columns.bytes.empty()) {
    const size_t before = compressed_.size();
    status = Compress(columns, level);
    if (!status.ok()) return status;
    column_bytes = compressed_.size() - before;
  }

  std::string header;  // all but the payload's bytes
  header.push_back(static_cast<char>(kCrcKey));
  AppendFixed32(Crc32c(compressed_.data(), compressed_.size()), &header);
  header.push_back(static_cast<char>(kCodecKey));
  AppendVarint(proto::Envelope::ZSTD, &header);
  header.push_back(static_cast<char>(kUncompressedSizeKey));
  AppendVarint(payload.bytes.size() + columns.bytes.size(), &header);
  if (column_bytes != 0) {
    header.push_back(static_cast<char>(kColumnBytesKey));
    AppendVarint(column_bytes, &header);
  }
  header.push_back(static_cast<char>(kPayloadKey));
  AppendVarint(compressed_.size(), &header);

  out_.clear();
  AppendVarint(header.size() + compressed_.size(), &out_);
  out_ += header;
  out_ += compressed_;
  return absl::string_view(out_);
}

EnvelopeDecoder::EnvelopeDecoder() : context_(ZSTD_createDCtx()) {}
EnvelopeDecoder::~EnvelopeDecoder() { ZSTD_freeDCtx(context_); }

absl::StatusOr<absl::string_view> EnvelopeDecoder::Unpack(const Envelope& envelope, bool without_columns,
                                                          uint64_t max_bytes) {
  absl::Span<const uint8_t> packed = envelope.payload;
  if (envelope.codec == proto::Envelope::STORED) {
    if (packed.size() > max_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("payload of ", packed.size(), " bytes: more than ", max_bytes));
    }
    return absl::string_view(reinterpret_cast<const char*>(packed.data()), packed.size());
  }
  if (envelope.uncompressed_size > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload unpacks to ", envelope.uncompressed_size, " bytes: more than ", max_bytes));
  }
  if (envelope.column_bytes != 0) {
    absl::Span<const uint8_t> rest = packed;
    while (rest.size() > envelope.column_bytes) {
      const size_t frame = ZSTD_findFrameCompressedSize(rest.data(), rest.size());
      if (ZSTD_isError(frame)) return ZstdError("payload does not unpack", frame);
      rest.remove_prefix(frame);
    }
    if (rest.size() != envelope.column_bytes) {
      return absl::InvalidArgumentError("the columns do not begin where the envelope says");
    }
  }
  if (without_columns) packed.remove_suffix(envelope.column_bytes);
  if (context_ == nullptr) return absl::ResourceExhaustedError("no memory for zstd");
  const size_t size = envelope.uncompressed_size;
  if (capacity_ < size) {
    buffer_.reset();
    capacity_ = 0;
    // Not touched before something is unpacked into it: a false claim costs address space only.
    buffer_.reset(new (std::nothrow) char[size]);
    if (buffer_ == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory to unpack ", size, " bytes"));
    }
    capacity_ = size;
  }
  const size_t unpacked = ZSTD_decompressDCtx(context_, buffer_.get(), size, packed.data(), packed.size());
  if (ZSTD_isError(unpacked)) return ZstdError("payload does not unpack", unpacked);
  const bool fits = without_columns && envelope.column_bytes != 0 ? unpacked <= size : unpacked == size;
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload unpacks to ", unpacked, " bytes, the envelope says ", size));
  }
  return absl::string_view(buffer_.get(), unpacked);
}

}  // namespace xenprof::chunk
