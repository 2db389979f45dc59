// What a chunk gets when it is complete: names, a trailer, its own name. Shared by the writer and by
// recovery.
#ifndef XENPROF_CHUNK_SEAL_H_
#define XENPROF_CHUNK_SEAL_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "chunk.pb.h"
#include "xenprof/chunk/partial_file.h"
#include "xenprof/chunk/totals.h"
#include "xenprof/chunk/writer.h"
#include "xenprof/merge/window.h"
#include "xenprof/symbols/symbolizer.h"

namespace xenprof::chunk {

struct SealCounts {
  uint64_t frames = 0, named_frames = 0;
};

// Names of all addresses of `tables`, as Symbols payloads of moderate size, given to `write` one after the
// other; stops at its first error. `symbolizer` may be null: no payloads.
absl::Status WriteSymbols(const merge::Tables& tables, symbols::Symbolizer* symbolizer,
                          const std::function<absl::Status(const proto::Payload&)>& write,
                          SealCounts* counts);

// Symbols, trailer, durable, renamed. After a failure the file is as before, so that sealing may be tried
// again.
absl::Status SealFile(PartialFile* file, const merge::Tables& tables, symbols::Symbolizer* symbolizer,
                      const Totals& totals, const proto::Mode& mode, proto::Trailer::End end,
                      const WriterOptions& options);

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_SEAL_H_
