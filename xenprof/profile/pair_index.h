// Numbers pairs of ids in the order they first come.
#ifndef XENPROF_PROFILE_PAIR_INDEX_H_
#define XENPROF_PROFILE_PAIR_INDEX_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "xenprof/merge/id_table.h"

namespace xenprof::profile {

// A map of (owner, key) for owners that count from 0 and mostly have a handful of keys: callees of a stack
// node, tasks of a stack. Those few are linked behind their owner, which costs 16 bytes a pair and, as
// neighbours were mostly added together, seldom a cache miss; a hash table over all pairs would cost one at
// each step. Only pairs of owners with many keys (a hot system call that thousands of short processes made)
// are in such a table, too.
class PairIndex {
 public:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max() >> 1;

  void Reserve(size_t owners, size_t pairs) {
    owners_.reserve(owners);
    pairs_.reserve(pairs);
  }
  size_t size() const { return pairs_.size(); }

  // The pair's number, below kNone, and whether it is new: then that is size() before.
  std::pair<uint32_t, bool> Insert(uint32_t owner, uint32_t key) {
    if (owner >= owners_.size()) AddOwners(size_t{owner} + 1);
    uint32_t& of = owners_[owner];
    const auto next = static_cast<uint32_t>(pairs_.size());
    if ((of & kMany) == 0) {
      int linked = 0;
      for (uint32_t i = of; i != kNone; i = pairs_[i].before, ++linked) {
        if (pairs_[i].key == key) return {i, false};
      }
      pairs_.push_back({owner, key, of});
      of = next;
      if (linked == kLinked) {
        ForEach(owner, [&](uint32_t i, uint32_t k) { FindOrAddMany(owner, k, i); });
        of |= kMany;
      }
      return {next, true};
    }
    const uint32_t number = FindOrAddMany(owner, key, next);
    if (number != next) return {number, false};
    pairs_.push_back({owner, key, of & ~kMany});
    of = next | kMany;
    return {next, true};
  }

  // At least as many owners as one past the highest that has pairs.
  size_t owners() const { return owners_.size(); }
  // Calls visit(number, key) for the pairs of an owner, the last one first.
  template <typename Visitor>
  void ForEach(uint32_t owner, Visitor&& visit) const {
    for (uint32_t i = owners_[owner] & ~kMany; i != kNone; i = pairs_[i].before) visit(i, pairs_[i].key);
  }
  // Calls visit(owner, key) for all pairs in the order of their numbers.
  template <typename Visitor>
  void ForEachPair(Visitor&& visit) const {
    for (const Pair& pair : pairs_) visit(pair.owner, pair.key);
  }

 private:
  static constexpr int kLinked = 8;
  static constexpr uint32_t kMany = kNone + 1;
  struct Pair {
    uint32_t owner, key;
    uint32_t before;  // the owner's pair before, or kNone
  };
  // By more than one: resizing is a call, and owners mostly come one by one. Not beyond what was reserved.
  void AddOwners(size_t least) {
    owners_.resize(std::max(least, std::min(least + owners_.size() / 8, owners_.capacity())), kNone);
  }
  uint32_t FindOrAddMany(uint32_t owner, uint32_t key, uint32_t next) {
    bool added;
    return many_.FindOrAdd((uint64_t{owner} << 32 | key) * 0x9e3779b97f4a7c15, next, &added,
                           [&](uint32_t i) { return pairs_[i].owner == owner && pairs_[i].key == key; });
  }

  std::vector<uint32_t> owners_;  // the last pair, or kNone; with kMany: all of its pairs are in many_
  std::vector<Pair> pairs_;
  merge::IdTable many_;
};

}  // namespace xenprof::profile

#endif  // XENPROF_PROFILE_PAIR_INDEX_H_
