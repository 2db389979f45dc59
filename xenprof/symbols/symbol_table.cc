#include "xenprof/symbols/symbol_table.h"

#include <zstd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace xenprof::symbols {
namespace {

constexpr size_t kBlockText = 16 << 10;
constexpr int kLevel = 1;

}  // namespace

void SymbolTable::FreeContext::operator()(ZSTD_CCtx_s* context) const { ZSTD_freeCCtx(context); }

SymbolTable::SymbolTable() : context_(ZSTD_createCCtx()) {}
SymbolTable::~SymbolTable() = default;

void SymbolTable::Add(const SymbolLine& symbol) {
  // The differences wrap around, as they do when they are added up again.
  absl::StrAppend(&text_, absl::Hex(symbol.address - previous_), " ", absl::string_view(&symbol.type, 1), " ",
                  symbol.name);
  if (!symbol.module.empty()) absl::StrAppend(&text_, "\t[", symbol.module, "]");
  text_.push_back('\n');
  previous_ = symbol.address;
  open_.first = std::min(open_.first, symbol.address);
  open_.last = std::max(open_.last, symbol.address);
  if (text_.size() >= kBlockText) CloseBlock();
}

void SymbolTable::CloseBlock() {
  if (text_.empty()) return;
  open_.text_bytes = static_cast<uint32_t>(text_.size());
  std::string packed(ZSTD_compressBound(text_.size()), '\0');
  const size_t size = context_ == nullptr ? 0
                                          : ZSTD_compressCCtx(context_.get(), packed.data(), packed.size(),
                                                              text_.data(), text_.size(), kLevel);
  // Without memory for zstd, or anything to gain, the text stays as it is.
  const bool plain = context_ == nullptr || ZSTD_isError(size) || size >= text_.size();
  open_.packed = plain ? text_ : packed.substr(0, size);
  open_.packed.shrink_to_fit();
  blocks_.push_back(std::exchange(open_, Block()));
  text_.clear();
  previous_ = 0;
}

void SymbolTable::Finish() {
  CloseBlock();
  blocks_.shrink_to_fit();
  text_.shrink_to_fit();
  context_ = nullptr;
}

bool SymbolTable::Around(absl::Span<const uint64_t> addresses,
                         const std::function<void(const SymbolLine&)>& call) const {
  std::vector<bool> wanted(blocks_.size(), false);
  // Least addresses and greatest ones ascending, to find a neighbour's by bisection.
  std::vector<uint64_t> firsts, lasts;
  for (const Block& block : blocks_) {
    firsts.push_back(block.first);
    lasts.push_back(block.last);
  }
  std::sort(firsts.begin(), firsts.end());
  std::sort(lasts.begin(), lasts.end());
  for (size_t b = 0; b < blocks_.size(); ++b) {
    const Block& block = blocks_[b];
    // The addresses it surrounds or touches, from both sides: those from `first` up to where the next greater
    // block begins.
    const auto inside = std::lower_bound(addresses.begin(), addresses.end(), block.first);
    if (inside != addresses.end() && *inside <= block.last) {
      wanted[b] = true;
      continue;
    }
    // Its greatest is the nearest below an address (no other block's greatest is between them).
    if (inside != addresses.end()) {
      const auto next_last = std::upper_bound(lasts.begin(), lasts.end(), block.last);
      if (next_last == lasts.end() || *next_last > *inside) wanted[b] = true;
    }
    // Its least is the nearest above an address.
    if (inside != addresses.begin()) {
      const uint64_t below = *std::prev(inside);
      const auto at = std::lower_bound(firsts.begin(), firsts.end(), block.first);
      if (at == firsts.begin() || *std::prev(at) <= below) wanted[b] = true;
    }
  }
  const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  if (context == nullptr) return false;
  std::string text;
  SymbolLine symbol;
  for (size_t b = 0; b < blocks_.size(); ++b) {
    if (!wanted[b]) continue;
    const Block& block = blocks_[b];
    absl::string_view lines = block.packed;
    if (block.packed.size() != block.text_bytes) {
      text.resize(block.text_bytes);
      const size_t size = ZSTD_decompressDCtx(context.get(), text.data(), text.size(), block.packed.data(),
                                              block.packed.size());
      if (ZSTD_isError(size)) return false;
      lines = text;
    }
    uint64_t previous = 0;
    while (!lines.empty()) {
      const size_t end = lines.find('\n');
      if (ParseSymbolLine(lines.substr(0, end), &symbol)) {
        symbol.address += previous;
        previous = symbol.address;
        call(symbol);
      }
      lines.remove_prefix(end + 1);
    }
  }
  return true;
}

size_t SymbolTable::memory_bytes() const {
  size_t bytes = blocks_.capacity() * sizeof(Block) + text_.capacity();
  for (const Block& block : blocks_) bytes += block.packed.capacity();
  return bytes;
}

}  // namespace xenprof::symbols
