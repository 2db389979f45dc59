// Writes one chunk file: proto/chunk.proto.
#ifndef XENPROF_CHUNK_WRITER_H_
#define XENPROF_CHUNK_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "chunk.pb.h"
#include "xenprof/merge/window.h"
#include "xenprof/symbols/symbolizer.h"

namespace xenprof::chunk {

struct WriterOptions {
  int compression_level = 3;   // zstd, of blocks
  int symbols_level = 9;       // zstd, of symbols
  bool sync = true;            // fsync before the rename, and the folder after it
};

class ChunkWriter {
 public:
  // Creates `path` + ".partial" (it must not exist) and writes the header. `header.start_ns` and ids are the caller's;
  // magic, format version and chunk id are filled in here. Errors name the file and the system's reason.
  static absl::StatusOr<std::unique_ptr<ChunkWriter>> Create(const std::string& path, proto::Header header,
                                                             const WriterOptions& options = {});
  // Leaves the partial file as it is: recovery finds it.
  virtual ~ChunkWriter() = default;

  // Appends one block: the window's samples and whatever `tables` has that earlier blocks did not bring. After a
  // failure the file is cut back to the last whole block, so that writing may go on later.
  virtual absl::Status WriteBlock(const merge::Window& window, const merge::Tables& tables,
                                  int64_t realtime_offset_ns) = 0;
  // The mode or the hypervisor's facts changed: goes with the next block.
  virtual void SetMode(const proto::Mode& mode) = 0;
  virtual void SetHypervisorFacts(const proto::HypervisorFacts& facts) = 0;

  // Names from `symbolizer` (may be null), trailer, fsync, rename to `path`. May run on another thread than WriteBlock
  // did, never beside it.
  virtual absl::Status Seal(const merge::Tables& tables, symbols::Symbolizer* symbolizer, proto::Trailer::End end) = 0;

  virtual uint64_t bytes() const = 0;  // in the file so far
  virtual uint64_t samples() const = 0;
  virtual uint64_t start_ns() const = 0;
  virtual const std::string& path() const = 0;  // the sealed one's
};

// The addresses of each mapping that need names, as symbols::Symbolizer takes them: ascending, less 1 where a frame is a
// return address. Index: mapping id.
std::vector<std::vector<uint64_t>> AddressesToName(const merge::Tables& tables);

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_WRITER_H_
