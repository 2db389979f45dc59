// The records of a perf.data's data section one after the other, decompressed, from a window of the file.
#ifndef XENPROF_PERF_PERF_DATA_STREAM_H_
#define XENPROF_PERF_PERF_DATA_STREAM_H_

#include <zstd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "xenprof/perf/perf_data_input.h"

namespace xenprof::perf {

class RecordStream {
 public:
  struct Segment {
    std::string name;
    const PerfDataInput* input;
    uint64_t begin, end;  // file offsets
  };
  explicit RecordStream(std::vector<Segment> segments);

  struct Record {
    absl::Span<const uint8_t> bytes;  // whole, 8-byte aligned; valid until the next call of Next
    uint64_t offset;                  // in the segment's file
    size_t segment;
  };
  // False at the end. A segment that is damaged ends at the damage, and problems() says so. Payloads that
  // follow a record (AUXTRACE, TRACING_DATA) are skipped. Fails only when reading fails.
  absl::StatusOr<bool> Next(Record* record);
  void Rewind();

  const std::vector<std::string>& problems() const { return problems_; }

 private:
  void BeginSegment(size_t index);
  // Makes at least `size` bytes from position_ on lie in the window; false when the segment has not that
  // many.
  absl::StatusOr<bool> Fill(size_t size);
  absl::StatusOr<bool> NextStored(Record* record);
  // The next record out of the compressed one being read; false when more compressed data is needed.
  bool NextUnpacked(Record* record);
  bool Unpack();
  absl::Span<const uint8_t> Aligned(const uint8_t* bytes, size_t size);
  // Ends the segment.
  void Damage(uint64_t offset, const std::string& what);
  void AddProblem(std::string problem);

  std::vector<Segment> segments_;
  size_t segment_ = 0;
  uint64_t position_ = 0;  // of the next stored record

  std::unique_ptr<uint64_t[]> window_;
  uint64_t window_begin_ = 0;  // file offset
  size_t window_bytes_ = 0;
  std::unique_ptr<uint64_t[]> aligned_;

  // perf compresses one zstd stream per segment, cut into COMPRESSED records; a record may go on in the next
  // of them.
  std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> zstd_;
  ZSTD_inBuffer packed_ = {};
  bool output_was_full_ = false;
  uint64_t packed_offset_ = 0;
  std::unique_ptr<uint64_t[]> unpacked_;
  size_t unpacked_begin_ = 0, unpacked_end_ = 0;

  std::vector<std::string> problems_;
};

}  // namespace xenprof::perf

#endif  // XENPROF_PERF_PERF_DATA_STREAM_H_
