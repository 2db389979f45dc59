// Short names for the markers that chains in these tests are full of.
#ifndef XENPROF_TESTS_UNIT_MERGE_CONTEXT_MARKERS_H_
#define XENPROF_TESTS_UNIT_MERGE_CONTEXT_MARKERS_H_

#include <cstdint>

#include "xenprof/perf/record.h"

namespace xenprof::merge {

inline constexpr uint64_t K = perf::kContextKernel;
inline constexpr uint64_t U = perf::kContextUser;

}  // namespace xenprof::merge

#endif  // XENPROF_TESTS_UNIT_MERGE_CONTEXT_MARKERS_H_
