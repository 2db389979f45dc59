// From a perf.data to a chunk, through the decoding and merging that live samples go through.
#ifndef CLIENT_IMPORT_PIPELINE_H_
#define CLIENT_IMPORT_PIPELINE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "xenprof/base/types.h"

namespace xenprof::client {

struct ImportOptions {
  std::string input;                     // as PerfDataFile::Open takes it
  std::string output;                    // the chunk; an older one of that name is replaced
  std::string event;                     // name; empty: the first event that has samples
  std::string kallsyms;                  // a saved /proc/kallsyms
  std::vector<std::string> xen_symbols;  // saved /proc/xen/xensyms or xen-syms files
  std::vector<std::string> symbol_roots;
  bool keep_unmapped_callers = false;  // merge::Assembler::KeepUnmappedCallers
  std::string producer;                // for the header
};

struct ImportResult {
  std::string event;
  uint64_t samples = 0;
  std::array<uint64_t, kOriginCount> samples_by_origin = {};
  struct LeftOut {
    std::string event;
    uint64_t samples = 0;
  };
  std::vector<LeftOut> left_out;  // other events with samples
  uint64_t bad_records = 0;
  uint64_t orphan_samples = 0;
  uint64_t lost_records = 0;
  uint64_t cpus = 0;
  uint64_t duration_ns = 0;  // first to last sample
  ModeKind mode = ModeKind::kUnspecified;
  std::string mode_reason;
  std::vector<std::string> warnings;  // one sentence each; in the chunk as notes, too
  std::vector<std::string> remarks;
};

// Samples are never dropped for what cannot be found out about them. InvalidArgument: no such event, no
// perf.data; NotFound: nothing to import in it; else what reading and writing say. Leaves no partial output
// behind.
absl::StatusOr<ImportResult> ImportPerfData(const ImportOptions& options);

}  // namespace xenprof::client

#endif  // CLIENT_IMPORT_PIPELINE_H_
