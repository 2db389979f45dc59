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

// A map of (owner, key) for owners that count from 0 and mostly have a key or none: callees of a stack node,
// tasks of a stack. One key is kept with its owner, a handful are linked behind it: neighbours were mostly
// added together, so that they seldom cost a cache miss, while a hash table over all pairs would cost one at
// each step. Only pairs of owners with many keys (a hot system call that thousands of short processes made)
// are in such a table, too.
class PairIndex {
 public:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max() >> 1;

  // So many owners may come.
  void Reserve(size_t owners) { owners_.reserve(owners); }
  size_t size() const { return size_; }

  // The pair's number, below kNone, and whether it is new: then that is size() before.
  std::pair<uint32_t, bool> Insert(uint32_t owner, uint32_t key) {
    if (owner >= owners_.size()) AddOwners(size_t{owner} + 1);
    Owner& of = owners_[owner];
    if ((of.place & kSeveral) == 0) {
      if (of.place == kNone) {
        of = {size_, key};
        return {size_++, true};
      }
      if (of.key_or_count == key) return {of.place, false};
      const Pair only = {owner, of.key_or_count, of.place, kNone};
      of = {kSeveral | static_cast<uint32_t>(pairs_.size()), 1};
      pairs_.push_back(only);
    } else if (of.key_or_count <= kLinked) {
      for (uint32_t i = of.place & ~kSeveral; i != kNone; i = pairs_[i].before) {
        if (pairs_[i].key == key) return {pairs_[i].number, false};
      }
    }
    const auto next = static_cast<uint32_t>(pairs_.size());
    if (of.key_or_count > kLinked) {
      const uint32_t found = FindOrAddMany(owner, key, next);
      if (found != next) return {pairs_[found].number, false};
    }
    pairs_.push_back({owner, key, size_, of.place & ~kSeveral});
    of.place = kSeveral | next;
    if (++of.key_or_count == kLinked + 1) {
      for (uint32_t i = next; i != kNone; i = pairs_[i].before) FindOrAddMany(owner, pairs_[i].key, i);
    }
    return {size_++, true};
  }

  // At least as many owners as one past the highest that has pairs.
  size_t owners() const { return owners_.size(); }
  // Calls visit(number, key) for the pairs of an owner, the last one first.
  template <typename Visitor>
  void ForEach(uint32_t owner, Visitor&& visit) const {
    const Owner& of = owners_[owner];
    if (of.place == kNone) return;
    if ((of.place & kSeveral) == 0) return visit(of.place, of.key_or_count);
    for (uint32_t i = of.place & ~kSeveral; i != kNone; i = pairs_[i].before) {
      visit(pairs_[i].number, pairs_[i].key);
    }
  }

 private:
  static constexpr uint32_t kLinked = 8;
  static constexpr uint32_t kSeveral = kNone + 1;
  struct Owner {
    uint32_t place = kNone;  // the only pair's number; with kSeveral: where the last one is in pairs_
    // The only pair's key; with kSeveral: how many there are. When more than kLinked, all are in many_.
    uint32_t key_or_count = 0;
  };
  struct Pair {
    uint32_t owner, key, number;
    uint32_t before;  // where the owner's pair before this is in pairs_, or kNone
  };
  // By more than one: resizing is a call, and owners mostly come one by one. Not beyond what was reserved.
  void AddOwners(size_t least) {
    owners_.resize(std::max(least, std::min(least + owners_.size() / 8, owners_.capacity())));
  }
  uint32_t FindOrAddMany(uint32_t owner, uint32_t key, uint32_t next) {
    bool added;
    return many_.FindOrAdd((uint64_t{owner} << 32 | key) * 0x9e3779b97f4a7c15, next, &added,
                           [&](uint32_t i) { return pairs_[i].owner == owner && pairs_[i].key == key; });
  }

  uint32_t size_ = 0;
  std::vector<Owner> owners_;
  std::vector<Pair> pairs_;  // of owners with several
  merge::IdTable many_;      // places in pairs_
};

}  // namespace xenprof::profile

#endif  // XENPROF_PROFILE_PAIR_INDEX_H_
