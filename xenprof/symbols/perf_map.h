// /tmp/perf-PID.map: names that JIT compilers write for generated code (Linux:
// tools/perf/Documentation/jit-interface.txt).
#ifndef XENPROF_SYMBOLS_PERF_MAP_H_
#define XENPROF_SYMBOLS_PERF_MAP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "xenprof/symbols/function_cache.h"
#include "xenprof/symbols/unique_fd.h"

namespace xenprof::symbols {

struct PerfMapNames {
  std::vector<FunctionCache::Found> found;  // one per address; `end` 0 where there is no name
  std::string problem;
};

// Lines are `START SIZE name`, hexadecimal, in the order the code was generated: a later one replaces earlier
// ones at the same place. `addresses` are virtual, ascending.
PerfMapNames FindPerfMapNames(UniqueFd fd, const std::string& name, absl::Span<const uint64_t> addresses);

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_PERF_MAP_H_
