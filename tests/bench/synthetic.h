// Ring images for benchmarks: grown to a depth, a number of distinct stacks and a number of rings, or
// captured.
#ifndef XENPROF_TESTS_BENCH_SYNTHETIC_H_
#define XENPROF_TESTS_BENCH_SYNTHETIC_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "xenprof/merge/assembler.h"
#include "xenprof/perf/record.h"
#include "xenprof/perf/testing/fake_ring.h"

namespace xenprof::bench {

inline constexpr uint64_t kKernelText = 0xffffffff81000000;

struct Shape {
  int depth = 20;
  int distinct = 1000;  // stacks
  int rings = 2;
  int samples = 200000;  // over all rings
  uint64_t kernel_text = kKernelText;
  uint64_t step_ns = 1'000'000;  // between the samples of one ring
};

// IP | TID | TIME | CALLCHAIN, sample_id_all: what xenprofd asks for.
perf::RecordLayout LiveLayout();

// Rings that are full of records, to be read again and again.
class RingImages {
 public:
  virtual ~RingImages() = default;

  int samples() const { return samples_; }
  uint64_t first_ns() const { return first_ns_; }
  uint64_t end_ns() const { return end_ns_; }
  size_t rings() const { return rings_.size(); }
  // A reader of all that ring `i` holds, as if just written.
  perf::Ring Reader(size_t i);
  uint64_t bytes() const;
  const perf::RecordLayout& layout() const { return layout_; }
  const merge::MergeOptions& options() const { return options_; }
  // The processes whose addresses are sampled.
  virtual void Describe(merge::Assembler* assembler) const = 0;

 protected:
  int samples_ = 0;
  uint64_t first_ns_ = 1'000'000'000, end_ns_ = 0;
  perf::RecordLayout layout_;
  merge::MergeOptions options_;
  std::vector<std::unique_ptr<perf::testing::FakeRing>> rings_;
};

class Synthetic : public RingImages {
 public:
  explicit Synthetic(const Shape& shape);
  void Describe(merge::Assembler* assembler) const override;

 private:
  const uint64_t kernel_text_;
};

// The records of a perf.data file, a ring for each CPU. The samples come several times over, later each time,
// until there are about `samples` of them.
absl::StatusOr<std::unique_ptr<RingImages>> Captured(const std::string& path, int samples,
                                                     const merge::MergeOptions& options);

}  // namespace xenprof::bench

#endif  // XENPROF_TESTS_BENCH_SYNTHETIC_H_
