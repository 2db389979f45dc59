// A stretch of time cut out of chunks, as a chunk of its own.
#ifndef XENPROF_CHUNK_EXTRACT_H_
#define XENPROF_CHUNK_EXTRACT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "xenprof/chunk/reader.h"
#include "xenprof/chunk/writer.h"

namespace xenprof::chunk {

struct ExtractReport {
  uint64_t samples = 0, blocks = 0;
  uint64_t start_ns = 0, end_ns = 0;  // what the new chunk covers
  uint64_t bytes = 0;
  std::vector<std::string> damage;  // of inputs opened in salvage mode: "FILE: offset N: reason"
};

// Writes `path` with exactly the samples stamped in [start_ns, end_ns) (CLOCK_MONOTONIC_RAW) of `inputs`,
// fresh readers in any order; the same chunk given twice counts once. Tables hold only what these samples
// use, names and lines come along, incidents and sampled times are cut at the window's ends (a count of
// records is kept whole). Mode, facts and frequency are those in force at the window's start and as they
// change in it. A reader opened in salvage mode gives what is good; otherwise damage is an error.
//
// InvalidArgument when inputs are of different hosts or boots, whose clocks cannot be compared; NotFound when
// they have no block in the window.
absl::StatusOr<ExtractReport> Extract(std::vector<std::unique_ptr<ChunkReader>> inputs, uint64_t start_ns,
                                      uint64_t end_ns, const std::string& path,
                                      const WriterOptions& options = {});

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_EXTRACT_H_
