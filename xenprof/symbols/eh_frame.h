// Where functions begin and end, as a program's tables for unwinding tell it: strip leaves those in place.
#ifndef XENPROF_SYMBOLS_EH_FRAME_H_
#define XENPROF_SYMBOLS_EH_FRAME_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "xenprof/symbols/elf_file.h"
#include "xenprof/symbols/function_cache.h"

namespace xenprof::symbols {

// For `addresses` (virtual ones, ascending): one entry each, the range of the frame description (FDE) that
// holds it, without a name; `end` 0 where there is none. A part that the compiler moved away (`.cold`) has an
// FDE of its own. Searches the table of .eh_frame_hdr and reads only those FDEs of .eh_frame it leads to;
// files without that table, which every linker writes for shared objects and programs that link to them, give
// nothing. Formats: Linux Standard Base, Core Specification 5.0, 10.6 "Exception Frames".
std::vector<FunctionCache::Found> FindEhFrameFunctions(const ElfFile& file,
                                                       absl::Span<const uint64_t> addresses);

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_EH_FRAME_H_
