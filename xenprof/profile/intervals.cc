#include "xenprof/profile/intervals.h"

#include <algorithm>

namespace xenprof::profile {

Interval Intersect(const Interval& a, const Interval& b) {
  return {std::max(a.start, b.start), std::min(a.end, b.end)};
}

void IntervalSet::Add(const Interval& interval) {
  if (interval.empty()) return;
  Interval merged = interval;
  std::vector<Interval> kept;
  kept.reserve(intervals_.size() + 1);
  for (const Interval& other : intervals_) {
    if (other.end < merged.start || other.start > merged.end) {
      kept.push_back(other);
    } else {
      merged = {std::min(merged.start, other.start), std::max(merged.end, other.end)};
    }
  }
  kept.push_back(merged);
  std::sort(kept.begin(), kept.end(), [](const Interval& a, const Interval& b) { return a.start < b.start; });
  intervals_ = std::move(kept);
}

void IntervalSet::Remove(const Interval& interval) {
  if (interval.empty()) return;
  std::vector<Interval> kept;
  for (const Interval& other : intervals_) {
    const Interval before = {other.start, std::min(other.end, interval.start)};
    const Interval after = {std::max(other.start, interval.end), other.end};
    if (!before.empty()) kept.push_back(before);
    if (!after.empty()) kept.push_back(after);
  }
  intervals_ = std::move(kept);
}

bool IntervalSet::Contains(uint64_t time) const {
  for (const Interval& interval : intervals_) {
    if (interval.Contains(time)) return true;
  }
  return false;
}

bool IntervalSet::Covers(const Interval& interval) const {
  for (const Interval& own : intervals_) {
    if (own.start <= interval.start && interval.end <= own.end) return true;
  }
  return false;
}

uint64_t IntervalSet::Overlap(const Interval& interval) const {
  uint64_t sum = 0;
  for (const Interval& own : intervals_) sum += Intersect(own, interval).length();
  return sum;
}

bool IntervalSet::Touches(const Interval& interval) const {
  return interval.empty() ? Contains(interval.start) : Overlap(interval) > 0;
}

uint64_t IntervalSet::length() const {
  uint64_t sum = 0;
  for (const Interval& interval : intervals_) sum += interval.length();
  return sum;
}

}  // namespace xenprof::profile
