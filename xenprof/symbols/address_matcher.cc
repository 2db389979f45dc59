#include "xenprof/symbols/address_matcher.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace xenprof::symbols {
namespace {

constexpr uint64_t kNoNext = std::numeric_limits<uint64_t>::max();
// Real tables hold an address in two or three symbols; this stops tables made to waste time.
constexpr uint64_t kMaxUpdatesPerAddress = 4096;

}  // namespace

uint32_t NameRank(bool is_function, bool is_weak, bool is_global, absl::string_view name) {
  const size_t underscores = std::min(name.find_first_not_of('_'), size_t{7});
  const size_t length = std::min(name.size(), size_t{0xffff});
  return (is_function ? 0u : 1u << 25) | (is_weak ? 1u << 24 : 0u) | (is_global ? 0u : 1u << 23) |
         static_cast<uint32_t>(underscores) << 16 | static_cast<uint32_t>(0xffff - length);
}

AddressMatcher::AddressMatcher(absl::Span<const uint64_t> addresses,
                               std::function<bool(uint64_t, uint64_t)> better)
    : addresses_(addresses),
      better_(std::move(better)),
      preceding_(addresses.size()),
      next_(addresses.size(), kNoNext),
      next_sized_(addresses.size(), kNoNext),
      ended_(addresses.size(), 0),
      holding_(addresses.size()) {}

size_t AddressMatcher::Precede(uint64_t start, uint32_t rank, uint64_t ref, bool sized) {
  const size_t slot = std::lower_bound(addresses_.begin(), addresses_.end(), start) - addresses_.begin();
  if (slot > 0) next_[slot - 1] = std::min(next_[slot - 1], start);
  if (slot == addresses_.size()) return kNone;
  Preceding& now = preceding_[slot];
  if (now.set) {
    if (start < now.start) return kNone;
    if (start == now.start) {
      if (rank > now.rank || rank == kBoundary) return kNone;
      if (rank == now.rank && !(better_ && better_(ref, now.ref))) return kNone;
    }
  }
  now = {.set = true, .sized = sized, .rank = rank, .start = start, .ref = ref, .slot = slot};
  return slot;
}

size_t AddressMatcher::Add(uint64_t start, uint32_t rank, uint64_t ref) {
  return Precede(start, rank, ref, false);
}

bool AddressMatcher::Hold(uint64_t start, uint64_t size, uint32_t rank, uint64_t ref) {
  const uint64_t end = size > kNoNext - start ? kNoNext : start + size;
  size_t i = std::lower_bound(addresses_.begin(), addresses_.end(), start) - addresses_.begin();
  if (i > 0) next_sized_[i - 1] = std::min(next_sized_[i - 1], start);
  const size_t after = std::lower_bound(addresses_.begin() + i, addresses_.end(), end) - addresses_.begin();
  if (after < ended_.size()) ended_[after] = std::max(ended_[after], end);
  for (; i < addresses_.size() && addresses_[i] < end; ++i) {
    if (++updates_ > kMaxUpdatesPerAddress * (addresses_.size() + 1)) return false;
    Holding& now = holding_[i];
    bool wins = !now.set;
    if (!wins) {
      if (start != now.start) {
        wins = start > now.start;
      } else if (rank != now.rank) {
        wins = rank < now.rank;
      } else if (end != now.end) {
        wins = end < now.end;
      } else {
        wins = better_ && better_(ref, now.ref);
      }
    }
    if (wins) now = {.set = true, .rank = rank, .start = start, .end = end, .ref = ref};
  }
  return true;
}

bool AddressMatcher::AddSized(uint64_t start, uint64_t size, uint32_t rank, uint64_t ref) {
  if (size == 0) {
    Precede(start, rank, ref, false);
    return true;
  }
  // It also ends what has no size before it.
  Precede(start, rank, ref, true);
  return Hold(start, size, rank, ref);
}

std::vector<AddressMatcher::Match> AddressMatcher::Finish() {
  for (size_t i = 1; i < preceding_.size(); ++i) {
    if (!preceding_[i].set) preceding_[i] = preceding_[i - 1];
    ended_[i] = std::max(ended_[i], ended_[i - 1]);
  }
  for (size_t i = next_.size(); i-- > 1;) {
    if (next_[i - 1] == kNoNext) next_[i - 1] = next_[i];
    if (next_sized_[i - 1] == kNoNext) next_sized_[i - 1] = next_sized_[i];
  }
  std::vector<Match> matches(addresses_.size());
  for (size_t i = 0; i < matches.size(); ++i) {
    const Preceding& before = preceding_[i];
    if (holding_[i].set) {
      matches[i] = {.found = true,
                    .start = std::max(holding_[i].start, ended_[i]),
                    .end = std::min(holding_[i].end, next_sized_[i]),
                    .ref = holding_[i].ref};
    } else if (before.set && !before.sized && before.rank != kBoundary) {
      matches[i] = {.found = true,
                    .start = before.start,
                    .end = next_[i] == kNoNext ? 0 : next_[i],
                    .ref = before.ref,
                    .slot = before.slot};
    } else {
      matches[i] = {.start = std::max(ended_[i], before.set ? before.start : 0),
                    .end = next_[i] == kNoNext ? 0 : next_[i]};
    }
  }
  return matches;
}

}  // namespace xenprof::symbols
