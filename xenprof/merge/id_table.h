// Finds the number of a thing in an array the table does not own: eight bytes a slot, no key kept twice.
#ifndef XENPROF_MERGE_ID_TABLE_H_
#define XENPROF_MERGE_ID_TABLE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace xenprof::merge {

// Open addressing. A slot holds the hash's upper half, so that the array is looked at for a match only and
// growing needs no keys.
class IdTable {
 public:
  // The id of the thing with this hash for which `same(id)` is true; else `next` is put in and returned, and
  // `*added`.
  template <typename Same>
  uint32_t FindOrAdd(uint64_t hash, uint32_t next, bool* added, Same&& same) {
    if (size_ * 4 >= slots_.size() * 3) Grow();
    const uint32_t tag = static_cast<uint32_t>(hash >> 32);
    const size_t mask = slots_.size() - 1;
    for (size_t at = tag & mask;; at = (at + 1) & mask) {
      Slot& slot = slots_[at];
      if (slot.id == kFree) {
        slot = {tag, next};
        ++size_;
        *added = true;
        return next;
      }
      if (slot.tag == tag && same(slot.id)) {
        *added = false;
        return slot.id;
      }
    }
  }

  // Fetches what FindOrAdd of this hash will look at first.
  void Prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[(hash >> 32) & (slots_.size() - 1)]); }

  // Stays as large as what it held needs: the next chunk is much like the last. A quieter one gives memory
  // back when it ends.
  void Clear() {
    size_t slots = kSmallest;
    while (size_ * 4 >= slots * 3) slots *= 2;
    if (slots == slots_.size()) {
      std::fill(slots_.begin(), slots_.end(), Slot{0, kFree});
    } else {
      slots_ = std::vector<Slot>(slots, Slot{0, kFree});
    }
    size_ = 0;
  }
  // What is in use.
  size_t memory_bytes() const { return size_ * sizeof(Slot); }

 private:
  static constexpr size_t kSmallest = 64;
  static constexpr uint32_t kFree = ~uint32_t{0};
  struct Slot {
    uint32_t tag, id;
  };

  void Grow() {
    std::vector<Slot> grown(slots_.size() * 2, Slot{0, kFree});
    const size_t mask = grown.size() - 1;
    for (const Slot& slot : slots_) {
      if (slot.id == kFree) continue;
      size_t at = slot.tag & mask;
      while (grown[at].id != kFree) at = (at + 1) & mask;
      grown[at] = slot;
    }
    slots_ = std::move(grown);
  }

  std::vector<Slot> slots_ = std::vector<Slot>(kSmallest, Slot{0, kFree});
  size_t size_ = 0;
};

}  // namespace xenprof::merge

#endif  // XENPROF_MERGE_ID_TABLE_H_
