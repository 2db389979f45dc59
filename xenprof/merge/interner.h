// One chunk's tables of frames, stack nodes and stacks, each thing once.
#ifndef XENPROF_MERGE_INTERNER_H_
#define XENPROF_MERGE_INTERNER_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "xenprof/merge/hash.h"
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
  uint32_t NodeOf(uint32_t parent, uint32_t frame);
  uint32_t StackOf(uint32_t leaf, Origin origin, uint8_t flags);

  // A stack seen before in the same address space (0: it has no user frames); false: not yet.
  bool Recall(Hash128 hash, uint64_t space, uint32_t* stack) const;
  void Remember(Hash128 hash, uint64_t space, uint32_t stack);

  size_t memory_bytes() const;

 private:
  struct MemoKey {
    Hash128 hash;
    uint64_t space;
    friend bool operator==(const MemoKey&, const MemoKey&) = default;
  };
  // The key is a hash already.
  struct MemoHash {
    size_t operator()(const MemoKey& key) const { return key.hash.low ^ (key.space * 0x9e3779b97f4a7c15); }
  };
  struct FrameKey {
    uint64_t address;
    uint32_t mapping;
    friend bool operator==(const FrameKey&, const FrameKey&) = default;
  };
  struct FrameHash {
    size_t operator()(const FrameKey& key) const {
      return hash_internal::Fold(key.address ^ 0x9e3779b97f4a7c15, key.mapping ^ 0xd6e8feb86659fd93);
    }
  };
  struct PairHash {
    size_t operator()(uint64_t key) const {
      return hash_internal::Fold(key ^ 0xa0761d6478bd642f, 0xe7037ed1a0b428db);
    }
  };

  Tables tables_;
  absl::flat_hash_map<FrameKey, uint32_t, FrameHash> frames_;
  absl::flat_hash_map<uint64_t, uint32_t, PairHash> nodes_;   // parent << 32 | frame
  absl::flat_hash_map<uint64_t, uint32_t, PairHash> stacks_;  // leaf << 32 | kind
  absl::flat_hash_map<MemoKey, uint32_t, MemoHash> memo_;
};

}  // namespace xenprof::merge

#endif  // XENPROF_MERGE_INTERNER_H_
