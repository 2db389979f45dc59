#include "xenprof/symbols/symbol_text.h"

#include "absl/strings/match.h"
#include "xenprof/symbols/address_matcher.h"

namespace xenprof::symbols {
// Marks of linker scripts (arch/x86/kernel/vmlinux.lds.S, include/asm-generic/vmlinux.lds.h,
// xen/arch/x86/xen.lds.S) and the padding before functions that the kernel and clang's CFI give names of its
// own.
bool IsMark(absl::string_view name) {
  if (absl::StartsWith(name, "__pfx_") || absl::StartsWith(name, "__cfi_")) return true;
  if (name == "_text" || name == "_stext" || name == "_etext" || name == "_end" || name == "_start")
    return true;
  if (name == "_sinittext" || name == "_einittext" || name == "_sexittext" || name == "_eexittext")
    return true;
  if (name == "_stextentry" || name == "_etextentry" || name == "__init_begin" || name == "__init_end")
    return true;
  return absl::StartsWith(name, "__") &&
         (absl::EndsWith(name, "text_start") || absl::EndsWith(name, "text_end") ||
          absl::EndsWith(name, "rodata_start") || absl::EndsWith(name, "rodata_end"));
}

bool ParseSymbolLine(absl::string_view line, SymbolLine* symbol) {
  size_t at = 0;
  uint64_t address = 0;
  for (; at < line.size() && line[at] != ' '; ++at) {
    const char c = line[at];
    uint64_t digit;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else if (c >= 'A' && c <= 'F') {
      digit = c - 'A' + 10;
    } else {
      return false;
    }
    if (at >= 16) return false;
    address = address << 4 | digit;
  }
  // " T n" at least.
  if (at == 0 || line.size() < at + 4 || line[at + 2] != ' ') return false;
  symbol->address = address;
  symbol->type = line[at + 1];
  absl::string_view name = line.substr(at + 3);
  symbol->module = {};
  // By hand: there are hundred thousands of lines.
  size_t tab = 0;
  while (tab < name.size() && name[tab] != '\t' && name[tab] != ' ') ++tab;
  if (tab < name.size()) {
    absl::string_view module = name.substr(tab + 1);
    name = name.substr(0, tab);
    const size_t close = module.find(']');
    if (module.size() > 2 && module[0] == '[' && close != absl::string_view::npos) {
      symbol->module = module.substr(1, close - 1);
    }
  }
  const size_t file = name.rfind('#');
  if (file != absl::string_view::npos) name.remove_prefix(file + 1);
  if (name.empty()) return false;
  symbol->name = name;
  return true;
}

uint32_t SymbolLineRank(const SymbolLine& symbol) {
  if (!symbol.IsText() || IsMark(symbol.name)) return AddressMatcher::kBoundary;
  return NameRank(true, symbol.type == 'w' || symbol.type == 'W', symbol.type != 't', symbol.name);
}

}  // namespace xenprof::symbols
