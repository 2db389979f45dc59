#include "xenprof/merge/interner.h"

#include <utility>

namespace xenprof::merge {

using hash_internal::Fold;

Tables Interner::Reset() {
  Tables old = std::exchange(tables_, Tables());
  frames_.Clear();
  nodes_.Clear();
  stacks_.Clear();
  memo_ = std::vector<Memo>(kSmallestMemo, Memo{{}, 0, kNoStack});
  // The entries with a meaning of their own: no mapping, the idle task, the root.
  tables_.mappings.emplace_back();
  Task idle;
  idle.comm = "swapper";
  idle.kernel_thread = true;
  tables_.tasks.push_back(std::move(idle));
  tables_.nodes.push_back({0, 0});
  return old;
}

uint32_t Interner::FrameOf(uint32_t mapping, uint64_t address) {
  bool added = false;
  const uint32_t frame = frames_.FindOrAdd(
      Fold(address ^ 0x9e3779b97f4a7c15, mapping ^ 0xd6e8feb86659fd93),
      static_cast<uint32_t>(tables_.frames.size()), &added, [&](uint32_t id) {
        return tables_.frames[id].address == address && tables_.frames[id].mapping == mapping;
      });
  if (added) tables_.frames.push_back({mapping, address});
  return frame;
}

uint32_t Interner::NodeOf(uint32_t parent, uint32_t frame) {
  bool added = false;
  const uint64_t key = static_cast<uint64_t>(parent) << 32 | frame;
  const uint32_t node = nodes_.FindOrAdd(
      Fold(key ^ 0xa0761d6478bd642f, 0xe7037ed1a0b428db), static_cast<uint32_t>(tables_.nodes.size()), &added,
      [&](uint32_t id) { return tables_.nodes[id].parent == parent && tables_.nodes[id].frame == frame; });
  if (added) tables_.nodes.push_back({parent, frame});
  return node;
}

uint32_t Interner::StackOf(uint32_t leaf, Origin origin, uint8_t flags) {
  bool added = false;
  const uint64_t kind = static_cast<uint64_t>(origin) | static_cast<uint64_t>(flags) << 4;
  const uint64_t key = static_cast<uint64_t>(leaf) << 32 | kind;
  const uint32_t stack =
      stacks_.FindOrAdd(Fold(key ^ 0xa0761d6478bd642f, 0xe7037ed1a0b428db),
                        static_cast<uint32_t>(tables_.stacks.size()), &added, [&](uint32_t id) {
                          const Stack& known = tables_.stacks[id];
                          return known.leaf == leaf && known.origin == origin && known.flags == flags;
                        });
  if (added) {
    tables_.stacks.push_back({leaf, origin, flags});
    if (tables_.stacks.size() * 2 > memo_.size()) GrowMemo();
  }
  return stack;
}

void Interner::Remember(Hash128 hash, uint64_t space, uint32_t stack) {
  Memo* set = &memo_[MemoSet(hash, space)];
  // The older one gives way.
  for (size_t way = kWays - 1; way > 0; --way) set[way] = set[way - 1];
  set[0] = {hash, space, stack};
}

void Interner::GrowMemo() {
  const std::vector<Memo> old =
      std::exchange(memo_, std::vector<Memo>(memo_.size() * 2, Memo{{}, 0, kNoStack}));
  for (size_t at = old.size(); at-- > 0;) {
    if (old[at].stack != kNoStack) Remember(old[at].hash, old[at].space, old[at].stack);
  }
}

size_t Interner::memory_bytes() const {
  return frames_.memory_bytes() + nodes_.memory_bytes() + stacks_.memory_bytes() +
         memo_.capacity() * sizeof(Memo) + tables_.frames.capacity() * sizeof(Frame) +
         tables_.nodes.capacity() * sizeof(Node) + tables_.stacks.capacity() * sizeof(Stack) +
         tables_.tasks.capacity() * sizeof(Task) + tables_.mappings.capacity() * sizeof(Mapping);
}

}  // namespace xenprof::merge
