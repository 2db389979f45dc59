// One chunk's tables of frames, stack nodes and stacks, each thing once.
#ifndef XENPROF_MERGE_INTERNER_H_
#define XENPROF_MERGE_INTERNER_H_

#include <cstdint>
#include <vector>

#include "xenprof/merge/hash.h"
#include "xenprof/merge/id_table.h"
#include "xenprof/merge/window.h"

namespace xenprof::merge {

class Interner {
 public:
  Interner() { Reset(); }

  // Hands the tables over and begins anew.
  Tables Reset();

  const Tables& tables() const { return tables_; }
  Tables& mutable_tables() { return tables_; }

  uint32_t FrameOf(uint32_t mapping, uint64_t address);
  // What FrameOf needs of memory is fetched meanwhile.
  void PrefetchFrame(uint32_t mapping, uint64_t address) const {
    frames_.Prefetch(FrameHash(mapping, address));
  }
  uint32_t NodeOf(uint32_t parent, uint32_t frame);
  uint32_t StackOf(uint32_t leaf, Origin origin, uint8_t flags);

  // What Remember was told of the same hash and place lately; false, and *id untouched: nothing, or
  // forgotten. `place` is what the hash does not tell: an address space, or the node where callers go on.
  bool Recall(Hash128 hash, uint64_t place, uint32_t* id) const {
    const Memo* set = &memo_[MemoSet(hash)];
    for (size_t way = 0; way < kWays; ++way) {
      const Memo& memo = set[way];
      if (memo.hash == hash && memo.place == place && memo.id != kNone) {
        *id = memo.id;
        return true;
      }
    }
    return false;
  }
  void PrefetchRecall(Hash128 hash) const { __builtin_prefetch(&memo_[MemoSet(hash)]); }
  void Remember(Hash128 hash, uint64_t place, uint32_t id);

  // What the chunk has filled, without what is kept to be filled.
  size_t memory_bytes() const;

 private:
  static uint64_t FrameHash(uint32_t mapping, uint64_t address) {
    return hash_internal::Fold(address ^ 0x9e3779b97f4a7c15, mapping ^ 0xd6e8feb86659fd93);
  }

  // Stacks as they were sampled to stacks of the chunk, callers to nodes. A cache: of the sampled ones there
  // may be any number, since what is cut from a broken chain differs every time. It grows with the stacks of
  // the chunk, within what a CPU's own cache holds.
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr size_t kWays = 2;
  static constexpr size_t kSmallestMemo = 1 << 11, kLargestMemo = 1 << 16;
  struct alignas(32) Memo {
    Hash128 hash;
    uint64_t place;
    uint32_t id;
  };
  static bool MemoIsSmall(size_t memos, size_t stacks) { return stacks * 2 > memos && memos < kLargestMemo; }
  size_t MemoSet(Hash128 hash) const { return hash.low & (memo_.size() - 1) & ~(kWays - 1); }
  void GrowMemo();

  Tables tables_;
  IdTable frames_, nodes_;
  // By node: a stack whose leaf it is; by stack: another one with the same leaf, of another kind.
  std::vector<uint32_t> stack_at_, next_stack_;
  std::vector<Memo> memo_;
};

}  // namespace xenprof::merge

#endif  // XENPROF_MERGE_INTERNER_H_
