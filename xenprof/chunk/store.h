// The folder a daemon keeps its chunks in: names, recovery, retention.
#ifndef XENPROF_CHUNK_STORE_H_
#define XENPROF_CHUNK_STORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "xenprof/symbols/symbolizer.h"

namespace xenprof::chunk {

struct StoredChunk {
  std::string path;
  uint64_t bytes = 0;
  absl::Time start;  // by the file's name
  absl::Time modified;
};

// "2026-11-30T23-59-01.123456Z-<8 hex digits of the chunk id>.xenprof": sorts by time.
std::string ChunkFileName(absl::Time start, uint32_t unique);

// The sealed chunks of a folder, oldest first.
absl::StatusOr<std::vector<StoredChunk>> ListChunks(const std::string& folder);

struct RecoveryReport {
  std::vector<std::string> sealed;     // paths of chunks made whole
  std::vector<std::string> discarded;  // partial files without one good block
  std::vector<std::string> messages;   // what was cut off, where and why
};
// Cuts every "*.partial" after its last good block, names its frames as far as `symbolizer` still can, and seals it.
// Also sweeps other temporary files a crash may have left.
absl::StatusOr<RecoveryReport> Recover(const std::string& folder, symbols::Symbolizer* symbolizer);

struct RetentionLimits {
  uint64_t max_bytes = 0;        // 0: none
  absl::Duration max_age = absl::InfiniteDuration();
  uint64_t min_free_bytes = 0;   // of the file system
};
struct RetentionReport {
  std::vector<std::string> removed;
  uint64_t bytes_kept = 0;
  uint64_t free_bytes = 0;
  bool below_floor = false;  // even without any sealed chunk there is too little free space
};
// Removes the oldest sealed chunks until the limits are kept. Never touches a partial file.
absl::StatusOr<RetentionReport> EnforceRetention(const std::string& folder, const RetentionLimits& limits,
                                                 absl::Time now);

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_STORE_H_
