// A window and what is new in the tables, as the bytes of a Block.
#ifndef XENPROF_CHUNK_BLOCK_ENCODER_H_
#define XENPROF_CHUNK_BLOCK_ENCODER_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "chunk.pb.h"
#include "xenprof/base/types.h"
#include "xenprof/chunk/writer.h"
#include "xenprof/merge/window.h"

namespace xenprof::chunk {

// Keeps its messages and buffers from block to block: a sample costs no allocation.
class BlockEncoder {
 public:
  // Cuts a block that would hold more samples into several, each with some CPUs' samples or part of one
  // CPU's, so that no payload comes near what readers refuse.
  static constexpr size_t kMaxSamplesPerBlock = size_t{2} << 20;

  // One piece of a window: samples [first_sample, end_sample) of each CPU in [first_cpu, end_cpu), the range
  // of samples applying to the only CPU when there is but one.
  struct Piece {
    size_t first_cpu, end_cpu, first_sample, end_sample;
  };
  static std::vector<Piece> Split(const merge::Window& window);

  // Everything of the block but `cpus` goes into block(), which the caller may add to before Serialize.
  // Entries of the tables before `written`, and of `domains` (may be null) before `domains_written`, are in
  // earlier blocks. InvalidArgument when the window refers to what the tables do not have.
  absl::Status Encode(const merge::Window& window, const Piece& piece, const merge::Tables& tables,
                      const merge::TableMarks& written, const DomainColumns* domains = nullptr,
                      size_t domains_written = 0);
  proto::Block* block() { return payload_.mutable_block(); }
  const proto::Block& columns() const { return columns_.block(); }
  uint64_t samples() const { return samples_; }
  const std::array<uint64_t, kOriginCount>& by_origin() const { return by_origin_; }

  // Ends the work on block(); false when it is too large for protobuf. The views are valid until the next
  // call.
  bool Serialize();
  absl::string_view payload_bytes() const { return payload_bytes_; }
  absl::string_view column_bytes() const { return column_bytes_; }
  // Places in them where data of another nature begins.
  absl::Span<const size_t> payload_cuts() const { return payload_cuts_; }
  absl::Span<const size_t> column_cuts() const { return column_cuts_; }

 private:
  absl::Status EncodeDictionary(const merge::Tables& tables, const merge::TableMarks& written);
  absl::Status EncodeCpu(const merge::CpuColumns& cpu, size_t begin, size_t end, const merge::Tables& tables,
                         const std::vector<uint32_t>* domains);

  proto::Payload payload_, columns_;
  uint64_t samples_ = 0;
  uint64_t first_ns_ = 0, last_ns_ = 0;  // of all samples
  std::array<uint64_t, kOriginCount> by_origin_{};
  std::vector<uint64_t> last_address_;  // index: mapping
  std::vector<uint64_t> steps_;
  std::vector<int64_t> deltas_;
  std::string payload_bytes_, column_bytes_;
  std::vector<size_t> payload_cuts_, column_cuts_;
};

void ToProto(const merge::Incident& incident, proto::Incident* out);

// The step that makes most others small: the median. `times` are ascending.
uint64_t UsualStep(absl::Span<const uint64_t> times, std::vector<uint64_t>* scratch);

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_BLOCK_ENCODER_H_
