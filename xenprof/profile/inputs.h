// Which chunks a profile is made of, and which stretch of each.
#ifndef XENPROF_PROFILE_INPUTS_H_
#define XENPROF_PROFILE_INPUTS_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "xenprof/base/framing.h"
#include "xenprof/chunk/reader.h"
#include "xenprof/profile/intervals.h"

namespace xenprof::profile {

// A chunk file: by its path, or already open (`path` is then only its name in messages).
struct Input {
  std::string path;
  UniqueFd descriptor;
};

// Files stay as they are, a folder becomes the sealed chunks in it, oldest first. NotFound names what does
// not exist.
absl::StatusOr<std::vector<Input>> ExpandInputs(absl::Span<const std::string> paths);

// Half open, exact to the nanosecond. A chunk's place in the calendar is its time plus the realtime offset of
// its trailer (of its header, when it was never sealed).
struct TimeWindow {
  enum class Clock : uint8_t {
    kRealtime,   // nanoseconds since 1970
    kMonotonic,  // CLOCK_MONOTONIC_RAW: only for chunks of one boot
  };
  Clock clock = Clock::kRealtime;
  int64_t start_ns = std::numeric_limits<int64_t>::min();
  int64_t end_ns = std::numeric_limits<int64_t>::max();
  // Not 0: the last so many nanoseconds of what the inputs hold, the bounds above cut that further.
  uint64_t last_ns = 0;
};

// One chunk of which something is wanted.
struct SelectedChunk {
  std::string path;
  std::unique_ptr<chunk::ChunkReader> reader;  // set for those given as descriptors, else to be opened
  bool sealed = false;
  uint64_t samples = 0;  // by its trailer
  Interval range;        // what it covers; CLOCK_MONOTONIC_RAW. `end` is the greatest value when not sealed
  IntervalSet wanted;    // the part of it to take
  int64_t realtime_offset_ns = 0;
};

struct Selection {
  std::vector<SelectedChunk> chunks;  // by start
  int64_t start_ns = 0, end_ns = 0;   // the window, CLOCK_REALTIME; still unbounded where it was
  uint64_t duplicates = 0;            // left out: the same chunk again
  uint64_t overlapping = 0;  // of which a part, or all, was already in another chunk of the same boot
  uint64_t outside = 0;      // left out: not in the window
};

// Looks at headers and trailers only. A chunk seen twice (same chunk id) counts once; where chunks of one
// boot overlap in time (a window cut out of others, given together with them), the one the daemon wrote
// itself counts.
absl::StatusOr<Selection> SelectChunks(std::vector<Input> inputs, const TimeWindow& window,
                                       const chunk::ReadOptions& options);

}  // namespace xenprof::profile

#endif  // XENPROF_PROFILE_INPUTS_H_
