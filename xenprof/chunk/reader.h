// Reads chunk files, whole, truncated or damaged.
#ifndef XENPROF_CHUNK_READER_H_
#define XENPROF_CHUNK_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "chunk.pb.h"

namespace xenprof::chunk {

struct ReadOptions {
  // Go on behind damage instead of failing: skipped stretches are told in damage().
  bool salvage = false;
  // Refuse a payload that claims to unpack to more than this.
  uint64_t max_payload_bytes = uint64_t{256} << 20;
};

struct Damage {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::string reason;
};

// Streams the payloads of one file in order; holds one at a time. Errors read "FILE: offset N: reason".
class ChunkReader {
 public:
  static absl::StatusOr<std::unique_ptr<ChunkReader>> Open(const std::string& path, const ReadOptions& options = {});
  // Takes the descriptor over. `name` stands for the file in errors.
  static absl::StatusOr<std::unique_ptr<ChunkReader>> FromDescriptor(int fd, const std::string& name,
                                                                     const ReadOptions& options = {});
  static absl::StatusOr<std::unique_ptr<ChunkReader>> FromBytes(std::string bytes, const std::string& name,
                                                                const ReadOptions& options = {});
  virtual ~ChunkReader() = default;

  // The first payload, already read and checked by opening.
  virtual const proto::Header& header() const = 0;
  // The next payload after the header; false at the end of the file.
  virtual absl::StatusOr<bool> Next(proto::Payload* payload) = 0;
  // The trailer, without unpacking what lies before it; NotFound when the file has none. Leaves Next where it was.
  virtual absl::StatusOr<proto::Trailer> ReadTrailer() = 0;
  virtual uint64_t offset() const = 0;       // of what Next returned last
  virtual uint64_t file_bytes() const = 0;
  virtual const std::string& name() const = 0;
  virtual const std::vector<Damage>& damage() const = 0;
};

// What `xenprofctl verify` says of one file: every envelope, every id, every total checked.
struct VerifyReport {
  bool sealed = false;
  uint64_t blocks = 0, samples = 0, lost = 0, shed = 0;
  uint64_t start_ns = 0, end_ns = 0;
  int64_t realtime_offset_ns = 0;
  uint64_t frames = 0, named_frames = 0;
  std::vector<Damage> problems;  // empty: content
};
absl::StatusOr<VerifyReport> Verify(const std::string& path);

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_READER_H_
