// Writes one chunk file: proto/chunk.proto.
#ifndef XENPROF_CHUNK_WRITER_H_
#define XENPROF_CHUNK_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "chunk.pb.h"
#include "xenprof/merge/window.h"
#include "xenprof/symbols/symbolizer.h"

namespace xenprof::chunk {

// What writing blocks takes of memory beside the tables: messages, buffers, the compressor's own.
class WriterMemory;
std::shared_ptr<WriterMemory> NewWriterMemory();

struct WriterOptions {
  int compression_level = 3;  // zstd, of blocks
  int symbols_level = 9;      // zstd, of symbols
  bool sync = true;           // fsync before the rename, and the folder after it
  bool replace = false;       // a file of that name, and a partial one nobody writes, may be replaced
  // For writers of which only the newest writes blocks: each finds the memory warm that the one before it
  // left. Null: the writer has its own.
  std::shared_ptr<WriterMemory> memory;
};

// The domain of each sample of a window, where that is known. merge knows none: whoever attributes samples
// brings these.
struct DomainColumns {
  std::vector<proto::Domain> domains;            // only grows over a chunk; [0]: not attributed
  std::vector<std::vector<uint32_t>> of_sample;  // [index in window.cpus][sample]
};

class ChunkWriter {
 public:
  // Creates `path` + ".partial" (it must not exist) and writes the header. `header.start_ns` and ids are the
  // caller's; magic and format version are filled in here, and the chunk id unless it is there. Strings
  // become UTF-8, as protobuf demands. Errors name the file and the system's reason; a full disk or quota is
  // ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<ChunkWriter>> Create(const std::string& path, proto::Header header,
                                                             const WriterOptions& options = {});
  // Leaves the partial file as it is: recovery finds it.
  virtual ~ChunkWriter() = default;

  // Appends one block (several, when the window holds millions of samples): the window's samples and whatever
  // `tables` has that earlier blocks did not bring. Entry 0 of mappings, tasks and nodes must be there. After
  // a failure the file is cut back to the last whole block, so that writing may go on later.
  virtual absl::Status WriteBlock(const merge::Window& window, const merge::Tables& tables,
                                  int64_t realtime_offset_ns, const DomainColumns* domains = nullptr) = 0;
  // The mode or the hypervisor's facts changed: goes with the next block.
  virtual void SetMode(const proto::Mode& mode) = 0;
  virtual void SetHypervisorFacts(const proto::HypervisorFacts& facts) = 0;

  // Names from `symbolizer` (may be null), trailer, fsync, rename to `path`, which must not exist unless
  // WriterOptions.replace. May run on another thread than WriteBlock did, never beside it. After a failure it
  // may be tried again.
  virtual absl::Status Seal(const merge::Tables& tables, symbols::Symbolizer* symbolizer,
                            proto::Trailer::End end) = 0;

  virtual uint64_t bytes() const = 0;  // in the file so far
  virtual uint64_t samples() const = 0;
  virtual uint64_t start_ns() const = 0;
  virtual const std::string& path() const = 0;  // the sealed one's
};

// The addresses of each mapping that need names, as symbols::Symbolizer takes them: ascending, less 1 where a
// frame is a return address. Index: mapping id.
std::vector<std::vector<uint64_t>> AddressesToName(const merge::Tables& tables);

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_WRITER_H_
