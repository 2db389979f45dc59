// Numbers pairs of ids in the order they first come.
#ifndef XENPROF_PROFILE_PAIR_INDEX_H_
#define XENPROF_PROFILE_PAIR_INDEX_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace xenprof::profile {

// A map of (owner, key) for owners that count from 0 and mostly have a handful of keys: callees of a stack
// node, tasks of a stack. Those few are linked behind their owner, which costs 16 bytes a pair and, as
// neighbours were mostly added together, seldom a cache miss; a hash table over all pairs would cost one at
// each step. Only owners with many keys (a hot system call that thousands of short processes made) are in
// such a table.
class PairIndex {
 public:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  void Reserve(size_t owners, size_t pairs) {
    owners_.reserve(owners);
    pairs_.reserve(pairs);
  }
  size_t size() const { return pairs_.size(); }

  // The pair's number, and whether it is new: then that is size() before.
  std::pair<uint32_t, bool> Insert(uint32_t owner, uint32_t key) {
    if (owner >= owners_.size()) AddOwners(size_t{owner} + 1);
    Owner& of = owners_[owner];
    if (of.count <= kLinked) {
      for (uint32_t i = of.last; i != kNone; i = pairs_[i].before) {
        if (pairs_[i].key == key) return {i, false};
      }
    } else if (const auto found = many_.find(uint64_t{owner} << 32 | key); found != many_.end()) {
      return {found->second, false};
    }
    const auto number = static_cast<uint32_t>(pairs_.size());
    pairs_.push_back({key, of.last});
    of.last = number;
    ++of.count;
    if (of.count > kLinked + 1) {
      many_.emplace(uint64_t{owner} << 32 | key, number);
    } else if (of.count == kLinked + 1) {
      ForEach(owner, [&](uint32_t i, uint32_t k) { many_.emplace(uint64_t{owner} << 32 | k, i); });
    }
    return {number, true};
  }

  // At least as many owners as one past the highest that has pairs.
  size_t owners() const { return owners_.size(); }
  // Calls visit(number, key) for the pairs of an owner, the last one first.
  template <typename Visitor>
  void ForEach(uint32_t owner, Visitor&& visit) const {
    for (uint32_t i = owners_[owner].last; i != kNone; i = pairs_[i].before) visit(i, pairs_[i].key);
  }

 private:
  static constexpr uint32_t kLinked = 8;
  struct Owner {
    uint32_t last = kNone;
    uint32_t count = 0;
  };
  struct Pair {
    uint32_t key, before;
  };
  // By more than one: resizing is a call, and owners mostly come one by one. Not beyond what was reserved.
  void AddOwners(size_t least) {
    owners_.resize(std::max(least, std::min(least + owners_.size() / 8, owners_.capacity())));
  }

  std::vector<Owner> owners_;
  std::vector<Pair> pairs_;
  absl::flat_hash_map<uint64_t, uint32_t> many_;
};

}  // namespace xenprof::profile

#endif  // XENPROF_PROFILE_PAIR_INDEX_H_
