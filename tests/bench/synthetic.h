// Ring images for benchmarks: grown to a depth, a number of distinct stacks and a number of rings.
#ifndef XENPROF_TESTS_BENCH_SYNTHETIC_H_
#define XENPROF_TESTS_BENCH_SYNTHETIC_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "xenprof/merge/assembler.h"
#include "xenprof/perf/record.h"
#include "xenprof/perf/testing/fake_ring.h"

namespace xenprof::bench {

struct Shape {
  int depth = 20;
  int distinct = 1000;  // stacks
  int rings = 2;
  int samples = 200000;  // over all rings
};

// IP | TID | TIME | CALLCHAIN, sample_id_all: what xenprofd asks for.
perf::RecordLayout LiveLayout();

class Synthetic {
 public:
  explicit Synthetic(const Shape& shape);

  int samples() const { return samples_; }
  uint64_t first_ns() const { return kFirstNs; }
  uint64_t end_ns() const { return end_ns_; }
  size_t rings() const { return rings_.size(); }
  // A reader of all that ring `i` holds, as if just written.
  perf::Ring Reader(size_t i);
  uint64_t bytes() const;
  // The processes whose addresses are sampled.
  void Describe(merge::Assembler* assembler) const;

 private:
  static constexpr uint64_t kFirstNs = 1'000'000'000;
  int samples_;
  uint64_t end_ns_ = 0;
  std::vector<std::unique_ptr<perf::testing::FakeRing>> rings_;
};

}  // namespace xenprof::bench

#endif  // XENPROF_TESTS_BENCH_SYNTHETIC_H_
