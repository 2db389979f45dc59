// A symbol table of text lines kept small: in compressed blocks, of which a search opens those around its
// addresses.
#ifndef XENPROF_SYMBOLS_SYMBOL_TABLE_H_
#define XENPROF_SYMBOLS_SYMBOL_TABLE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "xenprof/symbols/symbol_text.h"

struct ZSTD_CCtx_s;

namespace xenprof::symbols {

// About nine bytes a symbol. Not thread safe.
class SymbolTable {
 public:
  SymbolTable();
  ~SymbolTable();

  // In any order; quick to search when mostly ascending, as /proc/kallsyms is.
  void Add(const SymbolLine& symbol);
  // Call once, after the last Add.
  void Finish();

  // Calls with symbols in the order they were added: for each of `addresses` (ascending) at least all those
  // with the greatest address that is not beyond it, and all with the smallest one beyond it. False: no
  // memory to open a block.
  bool Around(absl::Span<const uint64_t> addresses, const std::function<void(const SymbolLine&)>& call) const;

  size_t memory_bytes() const;

 private:
  struct Block {
    uint64_t first = ~uint64_t{0}, last = 0;  // least and greatest address
    uint32_t text_bytes = 0;
    std::string packed;
  };
  void CloseBlock();

  struct FreeContext {
    void operator()(ZSTD_CCtx_s* context) const;
  };
  std::unique_ptr<ZSTD_CCtx_s, FreeContext> context_;  // while symbols are added
  std::vector<Block> blocks_;
  Block open_;
  std::string text_;  // of the open block: lines whose address is the difference to the one before
  uint64_t previous_ = 0;
};

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_SYMBOL_TABLE_H_
