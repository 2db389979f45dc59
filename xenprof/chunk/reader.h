// Reads chunk files, whole, truncated or damaged.
#ifndef XENPROF_CHUNK_READER_H_
#define XENPROF_CHUNK_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "chunk.pb.h"

namespace xenprof::chunk {

struct ReadOptions {
  // Go on behind damage instead of failing: skipped stretches are told in damage().
  bool salvage = false;
  // Refuse a payload that claims to unpack to more than this. (A writer cuts its blocks far below.)
  uint64_t max_payload_bytes = uint64_t{64} << 20;
};

struct Damage {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::string reason;
};

// Streams the payloads of one file in order; holds one at a time. Errors read "FILE: offset N: reason".
class ChunkReader {
 public:
  static absl::StatusOr<std::unique_ptr<ChunkReader>> Open(const std::string& path,
                                                           const ReadOptions& options = {});
  // Takes the descriptor over. `name` stands for the file in errors. What is no regular file is read whole,
  // up to 1 GiB.
  static absl::StatusOr<std::unique_ptr<ChunkReader>> FromDescriptor(int fd, const std::string& name,
                                                                     const ReadOptions& options = {});
  static absl::StatusOr<std::unique_ptr<ChunkReader>> FromBytes(std::string bytes, const std::string& name,
                                                                const ReadOptions& options = {});
  virtual ~ChunkReader() = default;

  // The first payload, already read and checked by opening. In salvage mode it is empty but for its magic
  // when the file's own was lost; damage() tells.
  virtual const proto::Header& header() const = 0;
  // The next payload after the header; false at the end of the file. Reuses `payload`'s memory. In salvage
  // mode the only errors left are those of reading the file itself.
  virtual absl::StatusOr<bool> Next(proto::Payload* payload) = 0;
  // From now on, blocks that do not overlap [start_ns, end_ns) come without `cpus`: those stay packed where
  // the writer kept them apart (Envelope.column_bytes), which makes such a block cheap.
  virtual void SetWindow(uint64_t start_ns, uint64_t end_ns) = 0;
  // Salvage: what Next returned last turned out to contradict itself; puts it into damage().
  virtual void ReportDamage(const std::string& reason) = 0;
  // An error of what Next returned last, with file and offset: "FILE: offset N: reason".
  virtual absl::Status ErrorHere(absl::string_view reason) const = 0;
  // The trailer, without unpacking what lies before it; NotFound when the file has none. Leaves Next where it
  // was.
  virtual absl::StatusOr<proto::Trailer> ReadTrailer() = 0;
  virtual uint64_t offset() const = 0;       // of what Next returned last
  virtual uint64_t next_offset() const = 0;  // where Next will go on
  virtual uint64_t file_bytes() const = 0;
  virtual const std::string& name() const = 0;
  virtual bool salvaging() const = 0;  // as opened
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
