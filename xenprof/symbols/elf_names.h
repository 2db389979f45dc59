// Names for addresses out of the symbol tables of one program or library.
#ifndef XENPROF_SYMBOLS_ELF_NAMES_H_
#define XENPROF_SYMBOLS_ELF_NAMES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "xenprof/symbols/elf_file.h"
#include "xenprof/symbols/function_cache.h"

namespace xenprof::symbols {

struct ElfNames {
  std::vector<FunctionCache::Found> functions;  // as they were found
  std::vector<uint32_t> function_of;            // by address asked for; kNone: in none
  static constexpr uint32_t kNone = ~uint32_t{0};
  // Null: in no function. Its name is empty where only its bounds are known.
  const FunctionCache::Found* At(size_t address) const {
    return function_of[address] == kNone ? nullptr : &functions[function_of[address]];
  }
  std::string tables;  // what was used: ".symtab", ".dynsym and .gnu_debugdata", ...
  std::string problem;
};

// `addresses` are virtual ones of `program`, ascending; so are those found. Uses its .symtab, else that of
// `debug` (the separate debug file, or null), else .gnu_debugdata (an xz-compressed ELF file with a .symtab
// of what .dynsym lacks; `max_decompressed_bytes` of it at most), the latter two together with .dynsym. Stubs
// of a procedure linkage table are called `name@plt`. Names are demangled, their version suffix is cut off.
// What has no symbol is in the function without a name that .eh_frame of `program` tells, as far as that does
// not reach into a symbol.
ElfNames FindElfNames(const std::shared_ptr<const ElfFile>& program,
                      const std::shared_ptr<const ElfFile>& debug, absl::Span<const uint64_t> addresses,
                      uint64_t max_decompressed_bytes);

// Decompressed .gnu_debugdata as an ELF file. NotFound when `program` has none.
absl::StatusOr<std::shared_ptr<const ElfFile>> OpenMiniDebugInfo(const ElfFile& program, uint64_t max_bytes);

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_ELF_NAMES_H_
