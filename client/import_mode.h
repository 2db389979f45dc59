// What the samples of an imported recording can show, found from what is in them.
#ifndef CLIENT_IMPORT_MODE_H_
#define CLIENT_IMPORT_MODE_H_

#include <string>

#include "client/import_scan.h"
#include "xenprof/base/types.h"
#include "xenprof/perf/perf_data.h"
#include "xenprof/symbols/symbolizer.h"

namespace xenprof::client {

struct ImportMode {
  ModeKind kind = ModeKind::kUnspecified;
  std::string reason;  // for people
};

// `scan.events[event_index]` is the event imported. A recording does not say whether its host ran Xen:
// samples in Xen, a kernel thread of Xen's drivers, Xen's symbols being given, and functions sampled that
// only a kernel on Xen executes (asked of `symbolizer`, may be null) do.
ImportMode FindImportMode(const ImportScan& scan, size_t event_index, const perf::PerfEvent& event,
                          bool xen_symbols_given, symbols::Symbolizer* symbolizer);

}  // namespace xenprof::client

#endif  // CLIENT_IMPORT_MODE_H_
