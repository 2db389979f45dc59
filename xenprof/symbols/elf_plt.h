// Names for the stubs of procedure linkage tables, which have no symbols of their own.
#ifndef XENPROF_SYMBOLS_ELF_PLT_H_
#define XENPROF_SYMBOLS_ELF_PLT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "xenprof/symbols/elf_file.h"
#include "xenprof/symbols/function_cache.h"

namespace xenprof::symbols {

// For `addresses` in .plt, .plt.sec or .plt.got sections: one entry each, `name@plt`, `end` 0 where none was
// found. x86-64 only: a stub jumps through a slot of the global offset table (ff 25 disp32, or its push of
// the relocation's number before the lazy resolver), and the slot's relocation has the symbol (System V ABI,
// AMD64 supplement, 5.2).
std::vector<FunctionCache::Found> FindPltStubs(const ElfFile& file, absl::Span<const uint64_t> addresses);

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_ELF_PLT_H_
