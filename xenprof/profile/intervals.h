// Sets of half-open time intervals, small and sorted.
#ifndef XENPROF_PROFILE_INTERVALS_H_
#define XENPROF_PROFILE_INTERVALS_H_

#include <cstdint>
#include <vector>

namespace xenprof::profile {

// [start, end) in nanoseconds of whatever clock the user of it says.
struct Interval {
  uint64_t start = 0;
  uint64_t end = 0;

  bool empty() const { return start >= end; }
  uint64_t length() const { return empty() ? 0 : end - start; }
  bool Contains(uint64_t time) const { return time >= start && time < end; }
};

Interval Intersect(const Interval& a, const Interval& b);

// Ascending, disjoint, none empty.
class IntervalSet {
 public:
  IntervalSet() = default;
  explicit IntervalSet(const Interval& interval) { Add(interval); }

  void Add(const Interval& interval);
  void Remove(const Interval& interval);
  bool Contains(uint64_t time) const;
  // True when one of the intervals holds all of `interval`.
  bool Covers(const Interval& interval) const;
  // How much of `interval` is in the set.
  uint64_t Overlap(const Interval& interval) const;
  // An empty `interval` (an instant) touches when the set contains its start.
  bool Touches(const Interval& interval) const;
  bool empty() const { return intervals_.empty(); }
  uint64_t length() const;
  const std::vector<Interval>& intervals() const { return intervals_; }

 private:
  std::vector<Interval> intervals_;
};

}  // namespace xenprof::profile

#endif  // XENPROF_PROFILE_INTERVALS_H_
