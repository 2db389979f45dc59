// The folder a daemon keeps its chunks in: names, recovery, retention.
#ifndef XENPROF_CHUNK_STORE_H_
#define XENPROF_CHUNK_STORE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "xenprof/symbols/symbolizer.h"

namespace xenprof::chunk {

inline constexpr absl::string_view kChunkSuffix = ".xenprof";

struct StoredChunk {
  std::string path;
  uint64_t bytes = 0;
  absl::Time start;  // by the file's name; of a file named otherwise, when it was modified
  absl::Time modified;
};

// "2026-11-30T23-59-01.123456Z-<8 hex digits of `unique`>.xenprof": sorts by time. Microseconds are cut off.
std::string ChunkFileName(absl::Time start, uint32_t unique);
// The time in such a name (without folders); false when it is no such name.
bool ParseChunkFileName(absl::string_view name, absl::Time* start);

// The sealed chunks of a folder, oldest first: regular files *.xenprof, whatever is before the dot.
absl::StatusOr<std::vector<StoredChunk>> ListChunks(const std::string& folder);

struct RecoveryReport {
  std::vector<std::string> sealed;     // paths of chunks made whole
  std::vector<std::string> discarded;  // partial files without one good block, and temporary files
  std::vector<std::string> messages;   // what was cut off or left alone, where and why
};
// Cuts every "*.xenprof.partial" after its last good block, names its frames as far as `symbolizer` (may be
// null) still can, and seals it. Removes "*.tmp", which a crash may have left. A file that another process is
// writing, or that a newer version wrote, is left alone. Names that only the boot sampled can tell (the
// kernel's, memory's) are not asked for after another boot; `boot_id` is the running one, empty:
// /proc/sys/kernel/random/boot_id.
absl::StatusOr<RecoveryReport> Recover(const std::string& folder, symbols::Symbolizer* symbolizer,
                                       std::string boot_id = "");

// Bytes a program may still write to the file system of a folder.
using FreeBytes = std::function<absl::StatusOr<uint64_t>(const std::string& folder)>;
absl::StatusOr<uint64_t> FreeBytesOf(const std::string& folder);  // statvfs: f_bavail

struct RetentionLimits {
  uint64_t max_bytes = 0;                             // of all chunks, the partial one included; 0: none
  absl::Duration max_age = absl::InfiniteDuration();  // of a chunk's start
  uint64_t min_free_bytes = 0;                        // of the file system
};
struct RetentionReport {
  std::vector<std::string> removed;
  uint64_t bytes_kept = 0;  // sealed and partial
  uint64_t free_bytes = 0;
  bool below_floor = false;  // even without any sealed chunk there is too little free space
};
// Removes the oldest sealed chunks until the limits are kept. Touches only files named by ChunkFileName:
// never a partial file, never what someone else put there.
absl::StatusOr<RetentionReport> EnforceRetention(const std::string& folder, const RetentionLimits& limits,
                                                 absl::Time now, const FreeBytes& free_bytes = FreeBytesOf);

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_STORE_H_
