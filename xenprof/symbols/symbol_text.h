// Symbol tables as text: /proc/kallsyms, /proc/xen/xensyms, `nm`, System.map, xen.map.
#ifndef XENPROF_SYMBOLS_SYMBOL_TEXT_H_
#define XENPROF_SYMBOLS_SYMBOL_TEXT_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace xenprof::symbols {

// One line: `address type name`, then a tab and `[module]` in kallsyms (kernel/kallsyms.c: s_show). xensyms
// writes local names as `file.c#name` (xen/common/symbols.c: xensyms_read); the file is left out of `name`.
struct SymbolLine {
  uint64_t address = 0;
  char type = 0;  // as nm has it
  absl::string_view name;
  absl::string_view module;  // without brackets, empty for the image itself

  bool IsText() const { return type == 't' || type == 'T' || type == 'w' || type == 'W' || type == 'i'; }
};

// False for a line that is no symbol.
bool ParseSymbolLine(absl::string_view line, SymbolLine* symbol);

// A mark of a linker script or padding before a function, which names no function.
bool IsMark(absl::string_view name);

// For AddressMatcher: how good this name is, kBoundary for data and for marks like `_etext` that name no
// function.
uint32_t SymbolLineRank(const SymbolLine& symbol);

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_SYMBOL_TEXT_H_
