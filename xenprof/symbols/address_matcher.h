// Finds the symbols that hold given addresses while a symbol table of any order and size goes by once. Memory
// is that of the addresses, not of the table.
#ifndef XENPROF_SYMBOLS_ADDRESS_MATCHER_H_
#define XENPROF_SYMBOLS_ADDRESS_MATCHER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace xenprof::symbols {

// How good a name is for its address, smaller is better. As `perf report` chooses among aliases: a function
// rather than a label, strong rather than weak, global rather than local, few leading underscores, then the
// longer name.
uint32_t NameRank(bool is_function, bool is_weak, bool is_global, absl::string_view name);

class AddressMatcher {
 public:
  // Rank of what only ends the symbol before it (data, section marks): never an answer.
  static constexpr uint32_t kBoundary = ~uint32_t{0};
  static constexpr size_t kNone = ~size_t{0};

  // Where a symbol with a size lies inside another one, the outer one's matches are the pieces around the
  // inner one. Where nothing is found, `start` and `end` are those of the gap between symbols.
  struct Match {
    bool found = false;
    uint64_t start = 0;
    uint64_t end = 0;     // 0: not known, nothing follows
    uint64_t ref = 0;     // as given to Add
    size_t slot = kNone;  // as returned by Add for this symbol; kNone for one with a size
  };

  // `addresses` ascending; they must outlive the matcher. Chooses between two refs of equal start, size and
  // rank; the first is kept when there is no `better`.
  explicit AddressMatcher(absl::Span<const uint64_t> addresses,
                          std::function<bool(uint64_t ref, uint64_t than_ref)> better = nullptr);

  // A symbol without size: holds what lies between it and the next symbol. Returns the slot it now occupies
  // (whose former occupant is gone: the place for a name), or kNone when it is no candidate.
  size_t Add(uint64_t start, uint32_t rank, uint64_t ref);

  // A symbol with a size. Where several hold an address, the one that starts last wins, then the smaller one.
  // False when the table is so full of overlaps that going on would take too long.
  bool AddSized(uint64_t start, uint64_t size, uint32_t rank, uint64_t ref);

  // One match per address. Call once, after the last Add.
  std::vector<Match> Finish();

 private:
  struct Preceding {
    bool set = false, sized = false;
    uint32_t rank = kBoundary;
    uint64_t start = 0, ref = 0;
    size_t slot = kNone;
  };
  struct Holding {
    bool set = false;
    uint32_t rank = kBoundary;
    uint64_t start = 0, end = 0, ref = 0;
  };

  size_t Precede(uint64_t start, uint32_t rank, uint64_t ref, bool sized);
  bool Hold(uint64_t start, uint64_t size, uint32_t rank, uint64_t ref);

  absl::Span<const uint64_t> addresses_;
  std::function<bool(uint64_t, uint64_t)> better_;
  std::vector<Preceding> preceding_;  // [i]: the last symbol in (addresses[i-1], addresses[i]]
  std::vector<uint64_t> next_;        // [i]: the first symbol start in (addresses[i], addresses[i+1]]
  std::vector<uint64_t> next_sized_;  // the same for symbols with a size
  std::vector<uint64_t>
      ended_;  // [i]: the last end of a symbol with a size in (addresses[i-1], addresses[i]], or 0
  std::vector<Holding> holding_;
  uint64_t updates_ = 0;
};

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_ADDRESS_MATCHER_H_
