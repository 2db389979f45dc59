// How often each function was running, and how often it was on the stack.
#ifndef XENPROF_EXPORT_FUNCTION_TOTALS_H_
#define XENPROF_EXPORT_FUNCTION_TOTALS_H_

#include <cstdint>
#include <vector>

#include "xenprof/profile/profile.h"

namespace xenprof::exporter {

struct FunctionTotal {
  uint32_t function = 0;
  uint64_t self = 0;   // samples in which it was the innermost
  uint64_t total = 0;  // samples it was in at all; a recursive function counts once a sample
};

struct LineTotal {
  uint32_t function = 0;
  profile::StringId file = 0;
  uint32_t line = 0;
  uint64_t self = 0;
};

struct FunctionTotals {
  std::vector<FunctionTotal> functions;  // by descending self, then total, then name
  std::vector<LineTotal> lines;  // of innermost frames, by descending self; only with Granularity::kAddress
  uint64_t without_stack = 0;    // samples with no frame at all
};

FunctionTotals SumFunctions(const profile::Profile& profile);

}  // namespace xenprof::exporter

#endif  // XENPROF_EXPORT_FUNCTION_TOTALS_H_
