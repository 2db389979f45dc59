#include "xenprof/profile/coverage.h"

#include <algorithm>
#include <utility>

namespace xenprof::profile {
namespace {

// Shorter holes between blocks are rounding, not blindness.
constexpr uint64_t kSmallestGapNs = 1'000'000;
// A collection in trouble may note thousands of incidents; sums go on counting.
constexpr size_t kMaxHappenings = 1000;

// Wraps around like the clocks' difference does; a hostile file's times are nonsense but harmless.
int64_t ToRealtime(uint64_t time, int64_t offset) {
  return static_cast<int64_t>(time + static_cast<uint64_t>(offset));
}

}  // namespace

void CoverageBuilder::AddSamples(uint32_t host, uint32_t cpu, uint64_t count) {
  cpus_[{host, cpu}].samples += count;
}

void CoverageBuilder::AddBlock(uint32_t host, const proto::Block& block, const IntervalSet& wanted,
                               int64_t realtime_offset_ns) {
  const Interval range = {block.start_ns(), block.end_ns()};
  HostTime& time = hosts_[host];
  time.realtime_offset_ns = realtime_offset_ns;
  for (const Interval& part : wanted.intervals()) {
    const Interval inside = Intersect(part, range);
    if (inside.empty()) continue;
    time.covered.Add(inside);
    const int64_t start = ToRealtime(inside.start, realtime_offset_ns);
    const int64_t end = ToRealtime(inside.end, realtime_offset_ns);
    start_ns_ = any_ ? std::min(start_ns_, start) : start;
    end_ns_ = any_ ? std::max(end_ns_, end) : end;
    any_ = true;
  }
  const uint64_t overlap = wanted.Overlap(range);
  if (overlap > 0) {
    for (const proto::CpuTime& cpu : block.cpu_time()) {
      // How a CPU's sampled time lies within a block is not told: evenly, then.
      const auto share = static_cast<double>(overlap) / static_cast<double>(range.length());
      cpus_[{host, cpu.cpu()}].sampled_ns +=
          overlap == range.length() ? cpu.sampled_ns() : static_cast<uint64_t>(share * cpu.sampled_ns());
    }
  }
  for (const proto::Incident& incident : block.incidents()) {
    AddIncident(host, incident, wanted, realtime_offset_ns);
  }
}

void CoverageBuilder::AddIncident(uint32_t host, const proto::Incident& incident, const IntervalSet& wanted,
                                  int64_t realtime_offset_ns) {
  const Interval range = {incident.start_ns(), std::max(incident.start_ns(), incident.end_ns())};
  if (!wanted.Touches(range)) return;
  const uint64_t duration = wanted.Overlap(range);
  // A reference only when the CPU is known: "all CPUs" is no CPU.
  CpuCoverage* cpu = incident.cpu_plus_one() == 0 ? nullptr : &cpus_[{host, incident.cpu_plus_one() - 1}];
  switch (incident.kind()) {
    case proto::Incident::LOST:
      sums_.lost += incident.count();
      if (cpu != nullptr) cpu->lost += incident.count();
      return;
    case proto::Incident::QUEUE_FULL:
      sums_.shed += incident.count();
      if (cpu != nullptr) cpu->shed += incident.count();
      return;
    case proto::Incident::THROTTLED:
      sums_.throttled_ns += duration;
      if (cpu != nullptr) cpu->throttled_ns += duration;
      return;
    case proto::Incident::SILENT_CPU:
      if (cpu != nullptr) cpu->silent_ns += duration;
      break;
    case proto::Incident::GAP:
      // A GAP of all CPUs lies within blocks; of one CPU, it is in the happenings.
      if (cpu == nullptr) sums_.gap_ns += duration;
      break;
    case proto::Incident::UNKNOWN_RECORD:
      sums_.unknown_records += incident.count();
      break;
    case proto::Incident::BAD_RECORD:
      sums_.bad_records += incident.count();
      break;
    case proto::Incident::SIDEBAND_LOST:
      ++sums_.sideband_lost;
      break;
    default:
      break;
  }
  if (sums_.happenings.size() >= kMaxHappenings) return;
  sums_.happenings.push_back({host, int64_t{incident.cpu_plus_one()} - 1, static_cast<int>(incident.kind()),
                              ToRealtime(range.start, realtime_offset_ns),
                              ToRealtime(range.end, realtime_offset_ns), incident.count(), incident.text()});
}

void CoverageBuilder::Finish(Coverage* coverage) {
  for (const auto& [host, time] : hosts_) {
    const std::vector<Interval>& covered = time.covered.intervals();
    for (size_t i = 1; i < covered.size(); ++i) {
      const uint64_t hole = covered[i].start - covered[i - 1].end;
      if (hole < kSmallestGapNs) continue;
      sums_.gap_ns += hole;
      if (sums_.happenings.size() >= kMaxHappenings) continue;
      sums_.happenings.push_back(
          {host, -1, proto::Incident::GAP, ToRealtime(covered[i - 1].end, time.realtime_offset_ns),
           ToRealtime(covered[i].start, time.realtime_offset_ns), 0, "no chunk covers this time"});
    }
  }
  std::stable_sort(sums_.happenings.begin(), sums_.happenings.end(),
                   [](const Happening& a, const Happening& b) { return a.start_ns < b.start_ns; });
  sums_.cpus.clear();
  for (auto& [key, cpu] : cpus_) {
    cpu.host = key.first;
    cpu.cpu = key.second;
    sums_.cpus.push_back(cpu);
  }
  // What inputs told already is kept.
  sums_.damage = std::move(coverage->damage);
  sums_.notes = std::move(coverage->notes);
  sums_.unsealed_inputs = coverage->unsealed_inputs;
  sums_.duplicate_inputs = coverage->duplicate_inputs;
  sums_.overlapping_inputs = coverage->overlapping_inputs;
  *coverage = std::move(sums_);
}

}  // namespace xenprof::profile
