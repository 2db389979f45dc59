// The outer layer of a chunk file: length, Envelope (proto/chunk.proto), zstd. By hand rather than by
// protobuf, so that a payload is neither copied nor unpacked before its checksum is known to be right.
#ifndef XENPROF_CHUNK_ENVELOPE_H_
#define XENPROF_CHUNK_ENVELOPE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace xenprof::chunk {

inline constexpr uint32_t kFormatVersion = 1;
inline constexpr absl::string_view kMagic = "xenprof";

// A varint as protobuf writes it, of at most ten bytes.
struct Varint {
  uint64_t value = 0;
  int bytes = 0;  // 0: the input ended within it; -1: malformed
};
Varint ReadVarint(absl::Span<const uint8_t> bytes);
void AppendVarint(uint64_t value, std::string* out);

// The fields of one Envelope; `payload` points into what was parsed.
struct Envelope {
  uint32_t crc32c = 0;
  uint64_t codec = 0;  // proto::Envelope::Codec, if this program knows it
  uint64_t uncompressed_size = 0;
  uint64_t column_bytes = 0;
  absl::Span<const uint8_t> payload;
};
// `bytes` is one Envelope without its length. Fields may be in any order, each at most once; unknown ones are
// skipped. Checks that the fields agree with each other, not the checksum.
absl::StatusOr<Envelope> ParseEnvelope(absl::Span<const uint8_t> bytes);

// Makes Envelopes with their lengths in front. Keeps its memory from one to the next.
class EnvelopeEncoder {
 public:
  EnvelopeEncoder();
  ~EnvelopeEncoder();
  EnvelopeEncoder(const EnvelopeEncoder&) = delete;
  EnvelopeEncoder& operator=(const EnvelopeEncoder&) = delete;

  struct Part {
    absl::string_view bytes;
    // Places in it where data of another nature begins: the compressor starts a block of its own there.
    absl::Span<const size_t> cuts;
  };
  // `payload` is a serialised Payload, `columns` (may be empty) the serialised part that holds `cpus` only; a
  // reader sees one after the other. The result is valid until the next call. ResourceExhausted when out of
  // memory.
  absl::StatusOr<absl::string_view> Encode(const Part& payload, const Part& columns, int level);

 private:
  absl::Status Compress(const Part& part, int level);

  ZSTD_CCtx_s* context_;
  std::string compressed_, out_;
};

// Unpacks payloads. Keeps its memory from one to the next.
class EnvelopeDecoder {
 public:
  EnvelopeDecoder();
  ~EnvelopeDecoder();
  EnvelopeDecoder(const EnvelopeDecoder&) = delete;
  EnvelopeDecoder& operator=(const EnvelopeDecoder&) = delete;

  // The whole Payload of a checked envelope, or, `without_columns`, what lies before the columns. Refuses
  // more than `max_bytes`. The result is valid until the next call.
  absl::StatusOr<absl::string_view> Unpack(const Envelope& envelope, bool without_columns,
                                           uint64_t max_bytes);

 private:
  ZSTD_DCtx_s* context_;
  std::unique_ptr<char[]> buffer_;
  size_t capacity_ = 0;
};

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_ENVELOPE_H_
