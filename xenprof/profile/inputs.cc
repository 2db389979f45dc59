#include "xenprof/profile/inputs.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "xenprof/chunk/store.h"

namespace xenprof::profile {
namespace {

constexpr int64_t kEarliest = std::numeric_limits<int64_t>::min();
constexpr int64_t kLatest = std::numeric_limits<int64_t>::max();
constexpr uint64_t kNoEnd = std::numeric_limits<uint64_t>::max();

struct Candidate {
  SelectedChunk chunk;
  std::string boot_id;
  std::string chunk_id;
  proto::Header::Source source = proto::Header::LIVE;
};

// `time` + `offset`, stopping at the ends of the type: unbounded stays unbounded.
int64_t Shift(int64_t time, int64_t offset) {
  if (time == kEarliest || time == kLatest) return time;
  int64_t shifted;
  if (__builtin_add_overflow(time, offset, &shifted)) return offset < 0 ? kEarliest : kLatest;
  return shifted;
}

uint64_t AsUnsigned(int64_t time) {
  if (time == kLatest) return kNoEnd;
  return time < 0 ? 0 : static_cast<uint64_t>(time);
}

int64_t Negated(int64_t offset) { return offset == kEarliest ? kLatest : -offset; }

absl::StatusOr<Candidate> Inspect(Input input, const chunk::ReadOptions& options) {
  const bool by_path = !input.descriptor.valid();
  absl::StatusOr<std::unique_ptr<chunk::ChunkReader>> opened =
      by_path ? chunk::ChunkReader::Open(input.path, options)
              : chunk::ChunkReader::FromDescriptor(input.descriptor.release(), input.path, options);
  if (!opened.ok()) return opened.status();
  chunk::ChunkReader& reader = **opened;
  Candidate candidate;
  SelectedChunk& chunk = candidate.chunk;
  chunk.path = input.path;
  const proto::Header& header = reader.header();
  candidate.boot_id = header.host().boot_id();
  candidate.chunk_id = header.chunk_id();
  candidate.source = header.source();
  absl::StatusOr<proto::Trailer> trailer = reader.ReadTrailer();
  if (trailer.ok()) {
    chunk.sealed = true;
    chunk.samples = trailer->samples();
    chunk.range = {trailer->start_ns(), trailer->end_ns()};
    chunk.realtime_offset_ns = trailer->realtime_offset_ns();
  } else if (absl::IsNotFound(trailer.status()) || options.salvage) {
    chunk.range = {header.start_ns(), kNoEnd};
    chunk.realtime_offset_ns = header.realtime_offset_ns();
  } else {
    return trailer.status();
  }
  // A day of chunks would take more descriptors than a process may have: opened again when its turn comes.
  if (!by_path) chunk.reader = *std::move(opened);
  return candidate;
}

// The window in one chunk's own clock.
Interval ToChunkClock(const TimeWindow& window, const SelectedChunk& chunk) {
  const int64_t shift = window.clock == TimeWindow::Clock::kMonotonic ? 0 : Negated(chunk.realtime_offset_ns);
  return {AsUnsigned(Shift(window.start_ns, shift)), AsUnsigned(Shift(window.end_ns, shift))};
}

int64_t RealtimeEnd(const SelectedChunk& chunk) {
  if (!chunk.sealed) return kEarliest;
  return Shift(static_cast<int64_t>(std::min<uint64_t>(chunk.range.end, kLatest)), chunk.realtime_offset_ns);
}

absl::Status CheckOneBoot(const std::vector<Candidate>& candidates) {
  for (const Candidate& candidate : candidates) {
    if (candidate.boot_id != candidates.front().boot_id) {
      return absl::InvalidArgumentError(
          absl::StrCat("a window in CLOCK_MONOTONIC_RAW needs chunks of one boot of one host, but ",
                       candidates.front().chunk.path, " and ", candidate.chunk.path, " are of two"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Input>> ExpandInputs(absl::Span<const std::string> paths) {
  std::vector<Input> inputs;
  for (const std::string& path : paths) {
    struct stat info;
    if (stat(path.c_str(), &info) != 0) {
      const std::string text = absl::StrCat(path, ": ", strerror(errno));
      return errno == ENOENT ? absl::NotFoundError(text) : absl::FailedPreconditionError(text);
    }
    if (!S_ISDIR(info.st_mode)) {
      inputs.push_back({path, {}});
      continue;
    }
    absl::StatusOr<std::vector<chunk::StoredChunk>> stored = chunk::ListChunks(path);
    if (!stored.ok()) return stored.status();
    for (chunk::StoredChunk& chunk : *stored) inputs.push_back({std::move(chunk.path), {}});
  }
  return inputs;
}

absl::StatusOr<Selection> SelectChunks(std::vector<Input> inputs, const TimeWindow& window,
                                       const chunk::ReadOptions& options) {
  Selection selection;
  std::vector<Candidate> candidates;
  absl::flat_hash_set<std::string> seen;
  for (Input& input : inputs) {
    absl::StatusOr<Candidate> candidate = Inspect(std::move(input), options);
    if (!candidate.ok()) return candidate.status();
    if (!candidate->chunk_id.empty() && !seen.insert(candidate->chunk_id).second) {
      ++selection.duplicates;
      continue;
    }
    candidates.push_back(*std::move(candidate));
  }

  TimeWindow bounds = window;
  if (bounds.last_ns != 0) {
    int64_t end = kEarliest;
    for (const Candidate& candidate : candidates) {
      end = std::max(end, bounds.clock == TimeWindow::Clock::kMonotonic
                              ? RealtimeEnd(candidate.chunk) - candidate.chunk.realtime_offset_ns
                              : RealtimeEnd(candidate.chunk));
    }
    bounds.end_ns = std::min(bounds.end_ns, end);
    const int64_t last = static_cast<int64_t>(std::min<uint64_t>(bounds.last_ns, kLatest));
    bounds.start_ns = std::max(bounds.start_ns, Shift(bounds.end_ns, -last));
  }
  if (bounds.clock == TimeWindow::Clock::kMonotonic) {
    absl::Status one_boot = CheckOneBoot(candidates);
    if (!one_boot.ok()) return one_boot;
  }
  selection.start_ns = bounds.start_ns;
  selection.end_ns = bounds.end_ns;
  if (bounds.clock == TimeWindow::Clock::kMonotonic && !candidates.empty()) {
    const int64_t offset = candidates.front().chunk.realtime_offset_ns;
    selection.start_ns = Shift(selection.start_ns, offset);
    selection.end_ns = Shift(selection.end_ns, offset);
  }

  // What the daemon wrote first, so that a copy gives way to it.
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::make_pair(a.source != proto::Header::LIVE, a.chunk.range.start) <
           std::make_pair(b.source != proto::Header::LIVE, b.chunk.range.start);
  });
  absl::flat_hash_map<std::string, IntervalSet> taken;  // by boot
  for (Candidate& candidate : candidates) {
    SelectedChunk& chunk = candidate.chunk;
    chunk.wanted = IntervalSet(Intersect(ToChunkClock(bounds, chunk), chunk.range));
    if (chunk.wanted.empty()) {
      ++selection.outside;
      continue;
    }
    // Two imports may well cover the same time: what perf recorded twice was sampled twice.
    if (chunk.sealed && !candidate.boot_id.empty() && candidate.source != proto::Header::IMPORTED) {
      IntervalSet& of_boot = taken[candidate.boot_id];
      if (of_boot.Overlap(chunk.range) > 0) {
        const uint64_t before = chunk.wanted.length();
        for (const Interval& interval : of_boot.intervals()) chunk.wanted.Remove(interval);
        if (chunk.wanted.length() < before) ++selection.overlapping;
      }
      of_boot.Add(chunk.range);
      if (chunk.wanted.empty()) continue;
    }
    selection.chunks.push_back(std::move(chunk));
  }
  std::stable_sort(
      selection.chunks.begin(), selection.chunks.end(),
      [](const SelectedChunk& a, const SelectedChunk& b) { return a.range.start < b.range.start; });
  return selection;
}

}  // namespace xenprof::profile
