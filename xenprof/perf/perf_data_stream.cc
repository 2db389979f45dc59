#include "xenprof/perf/perf_data_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xenprof/perf/record.h"

namespace xenprof::perf {
namespace {

constexpr size_t kMaxRecordBytes = size_t{64} << 10;  // perf_event_header.size has 16 bits
constexpr size_t kWindowBytes = size_t{1} << 20;
constexpr size_t kUnpackedBytes = size_t{256} << 10;
static_assert(kUnpackedBytes > kMaxRecordBytes && kWindowBytes > kMaxRecordBytes);
constexpr size_t kMaxProblems = 64;

// enum perf_user_event_type.
constexpr uint32_t kTracingData = 66;
constexpr uint32_t kAuxtrace = 71;
constexpr uint32_t kCompressed = 81;
constexpr uint32_t kCompressed2 = 83;

RecordHeader HeaderAt(const uint8_t* bytes) {
  RecordHeader header;
  std::memcpy(&header, bytes, sizeof header);
  return header;
}

const uint8_t* Bytes(const std::unique_ptr<uint64_t[]>& words) {
  return reinterpret_cast<const uint8_t*>(words.get());
}
uint8_t* Bytes(std::unique_ptr<uint64_t[]>& words) { return reinterpret_cast<uint8_t*>(words.get()); }

}  // namespace

RecordStream::RecordStream(std::vector<Segment> segments)
    : segments_(std::move(segments)),
      window_(new uint64_t[kWindowBytes / 8]),
      aligned_(new uint64_t[kMaxRecordBytes / 8]),
      zstd_(nullptr, ZSTD_freeDCtx) {
  BeginSegment(0);
}

void RecordStream::BeginSegment(size_t index) {
  segment_ = index;
  position_ = index < segments_.size() ? segments_[index].begin : 0;
  window_begin_ = window_bytes_ = 0;
  packed_ = {};
  output_was_full_ = false;
  unpacked_begin_ = unpacked_end_ = 0;
  if (zstd_ != nullptr) ZSTD_DCtx_reset(zstd_.get(), ZSTD_reset_session_only);
}

void RecordStream::Rewind() { BeginSegment(0); }

void RecordStream::AddProblem(std::string problem) {
  // A second pass meets the same damage again.
  if (std::find(problems_.begin(), problems_.end(), problem) != problems_.end()) return;
  if (problems_.size() < kMaxProblems) problems_.push_back(std::move(problem));
}

void RecordStream::Damage(uint64_t offset, const std::string& what) {
  const Segment& segment = segments_[segment_];
  AddProblem(absl::StrCat(segment.name, ": offset ", offset, ": ", what, "; the ", segment.end - offset,
                          " bytes from there on are left out"));
  BeginSegment(segment_ + 1);
}

absl::Span<const uint8_t> RecordStream::Aligned(const uint8_t* bytes, size_t size) {
  if (reinterpret_cast<uintptr_t>(bytes) % 8 == 0) return absl::MakeConstSpan(bytes, size);
  std::memcpy(aligned_.get(), bytes, size);
  return absl::MakeConstSpan(Bytes(std::as_const(aligned_)), size);
}

absl::StatusOr<bool> RecordStream::Fill(size_t size) {
  const Segment& segment = segments_[segment_];
  if (size > segment.end - position_) return false;
  if (position_ >= window_begin_ && position_ - window_begin_ <= window_bytes_ &&
      window_bytes_ - (position_ - window_begin_) >= size) {
    return true;
  }
  const size_t wanted = static_cast<size_t>(std::min<uint64_t>(kWindowBytes, segment.end - position_));
  absl::StatusOr<size_t> got = segment.input->ReadAt(position_, window_.get(), wanted);
  if (!got.ok())
    return absl::Status(got.status().code(), absl::StrCat(segment.name, ": ", got.status().message()));
  window_begin_ = position_;
  window_bytes_ = *got;
  return window_bytes_ >= size;
}

bool RecordStream::Unpack() {
  if (unpacked_begin_ > 0) {
    std::memmove(Bytes(unpacked_), Bytes(unpacked_) + unpacked_begin_, unpacked_end_ - unpacked_begin_);
    unpacked_end_ -= unpacked_begin_;
    unpacked_begin_ = 0;
  }
  ZSTD_outBuffer out = {Bytes(unpacked_), kUnpackedBytes, unpacked_end_};
  const size_t result = ZSTD_decompressStream(zstd_.get(), &out, &packed_);
  if (ZSTD_isError(result)) {
    Damage(packed_offset_, absl::StrCat("compressed data: ", ZSTD_getErrorName(result)));
    return false;
  }
  output_was_full_ = out.pos == out.size;
  unpacked_end_ = out.pos;
  return true;
}

bool RecordStream::NextUnpacked(Record* record) {
  while (true) {
    const size_t have = unpacked_end_ - unpacked_begin_;
    if (have >= sizeof(RecordHeader)) {
      const uint8_t* bytes = Bytes(unpacked_) + unpacked_begin_;
      const RecordHeader header = HeaderAt(bytes);
      if (header.size < sizeof header) {
        Damage(packed_offset_,
               absl::StrCat("a compressed ", RecordTypeName(header.type), " record claims a size of ",
                            header.size, ", less than its header"));
        return false;
      }
      if (have >= header.size) {
        *record = {Aligned(bytes, header.size), packed_offset_, segment_};
        unpacked_begin_ += header.size;
        return true;
      }
    }
    // The buffer holds more than the largest record, so that there is room whenever one is incomplete.
    if (packed_.pos == packed_.size && !output_was_full_) return false;
    const size_t position_before = packed_.pos, end_before = have;
    if (!Unpack()) return false;
    if (packed_.pos == position_before && unpacked_end_ == end_before) return false;
  }
}

absl::StatusOr<bool> RecordStream::NextStored(Record* record) {
  // True: `record` is set, or the record was a compressed one to go on with, then `record->bytes` is empty.
  const Segment& segment = segments_[segment_];
  const uint64_t offset = position_;
  const uint64_t left = segment.end - position_;
  if (left == 0) {
    if (unpacked_end_ > unpacked_begin_) {
      AddProblem(
          absl::StrCat(segment.name, ": offset ", packed_offset_, ": compressed data ends within a record"));
    }
    BeginSegment(segment_ + 1);
    return false;
  }
  absl::StatusOr<bool> filled = Fill(sizeof(RecordHeader));
  if (!filled.ok()) return filled.status();
  if (!*filled) {
    Damage(offset, absl::StrCat(left, " bytes are less than a record's header"));
    return false;
  }
  const RecordHeader header = HeaderAt(Bytes(window_) + (position_ - window_begin_));
  const std::string name =
      header.size < sizeof header || header.size > left ? RecordTypeName(header.type) : "";
  if (header.size < sizeof header) {
    Damage(offset, absl::StrCat(name, " record claims a size of ", header.size, ", less than its header"));
    return false;
  }
  if (header.size > left) {
    Damage(offset, absl::StrCat(name, " record claims ", header.size, " bytes where ", left, " are left"));
    return false;
  }
  filled = Fill(header.size);
  if (!filled.ok()) return filled.status();
  if (!*filled) {
    Damage(offset, "the file has become shorter");
    return false;
  }
  const uint8_t* bytes = Bytes(window_) + (position_ - window_begin_);
  position_ += header.size;

  if (header.type == kCompressed || header.type == kCompressed2) {
    size_t begin = sizeof header;
    size_t end = header.size;
    if (header.type == kCompressed2) {  // u64 data_size, data, padding
      uint64_t data_bytes = 0;
      begin += sizeof data_bytes;
      if (header.size >= begin) std::memcpy(&data_bytes, bytes + sizeof header, sizeof data_bytes);
      if (header.size < begin || data_bytes > header.size - begin) {
        Damage(offset, absl::StrCat("compressed record of ", header.size, " bytes claims ", data_bytes,
                                    " bytes of data"));
        return false;
      }
      end = begin + data_bytes;
    }
    if (zstd_ == nullptr) {
      zstd_.reset(ZSTD_createDCtx());
      if (zstd_ == nullptr)
        return absl::ResourceExhaustedError(absl::StrCat(segment.name, ": no memory for zstd"));
      ZSTD_DCtx_setParameter(zstd_.get(), ZSTD_d_windowLogMax, kZstdWindowLog);
      unpacked_.reset(new uint64_t[kUnpackedBytes / 8]);
    }
    packed_ = {bytes + begin, end - begin, 0};
    packed_offset_ = offset;
    record->bytes = {};
    return true;
  }

  uint64_t payload = 0;
  if (header.type == kAuxtrace && header.size >= sizeof header + 8) {
    std::memcpy(&payload, bytes + sizeof header, 8);
  } else if (header.type == kTracingData && header.size >= sizeof header + 4) {
    uint32_t size;
    std::memcpy(&size, bytes + sizeof header, 4);
    payload = (uint64_t{size} + 7) / 8 * 8;
  }
  *record = {Aligned(bytes, header.size), offset, segment_};
  if (payload > segment.end - position_) {
    AddProblem(absl::StrCat(segment.name, ": offset ", offset, ": ", payload, " bytes of trace data where ",
                            segment.end - position_, " are left"));
    payload = segment.end - position_;
  }
  position_ += payload;
  return true;
}

absl::StatusOr<bool> RecordStream::Next(Record* record) {
  while (segment_ < segments_.size()) {
    if (unpacked_ != nullptr && NextUnpacked(record)) return true;
    if (segment_ >= segments_.size()) break;
    absl::StatusOr<bool> got = NextStored(record);
    if (!got.ok()) return got.status();
    if (*got && !record->bytes.empty()) return true;
  }
  return false;
}

}  // namespace xenprof::perf
