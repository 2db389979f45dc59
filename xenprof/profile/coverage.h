// Adds up what was not seen.
#ifndef XENPROF_PROFILE_COVERAGE_H_
#define XENPROF_PROFILE_COVERAGE_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "chunk.pb.h"
#include "xenprof/profile/intervals.h"
#include "xenprof/profile/profile.h"

namespace xenprof::profile {

class CoverageBuilder {
 public:
  // A block of `host` of which the time in `wanted` is taken. Times of incidents become calendar time by
  // `realtime_offset_ns`. An incident that lies across the window's edge counts with what lies inside; its
  // count, which cannot be divided, counts whole.
  void AddBlock(uint32_t host, const proto::Block& block, const IntervalSet& wanted,
                int64_t realtime_offset_ns);
  void AddSamples(uint32_t host, uint32_t cpu, uint64_t count);

  // Stretches between the first and the last block of a host that no block covers become gaps.
  void Finish(Coverage* coverage);

  // First and last instant covered, of all hosts; CLOCK_REALTIME. Both 0 when nothing is.
  int64_t start_ns() const { return any_ ? start_ns_ : 0; }
  int64_t end_ns() const { return any_ ? end_ns_ : 0; }

 private:
  struct HostTime {
    IntervalSet covered;
    int64_t realtime_offset_ns = 0;
  };
  void AddIncident(uint32_t host, const proto::Incident& incident, const IntervalSet& wanted,
                   int64_t realtime_offset_ns);

  std::map<std::pair<uint32_t, uint32_t>, CpuCoverage> cpus_;
  std::map<uint32_t, HostTime> hosts_;
  Coverage sums_;
  bool any_ = false;
  int64_t start_ns_ = 0, end_ns_ = 0;
};

}  // namespace xenprof::profile

#endif  // XENPROF_PROFILE_COVERAGE_H_
