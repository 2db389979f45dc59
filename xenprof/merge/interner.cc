#include "xenprof/merge/interner.h"

#include <algorithm>
#include <utility>

namespace xenprof::merge {

Tables Interner::Reset() {
  Tables old = std::exchange(tables_, Tables());
  frames_.Clear();
  nodes_.Clear();
  // Room for a chunk like the last: growing costs copies, and faults for fresh pages.
  tables_.frames.reserve(old.frames.size());
  tables_.nodes.reserve(old.nodes.size() + 1);
  tables_.stacks.reserve(old.stacks.size());
  stack_at_ = {};
  stack_at_.reserve(old.nodes.size() + 1);
  stack_at_.push_back(kNone);
  next_stack_ = {};
  next_stack_.reserve(old.stacks.size());
  size_t memos = kSmallestMemo;
  while (MemoIsSmall(memos, old.stacks.size())) memos *= 2;
  if (memos == memo_.size()) {
    std::fill(memo_.begin(), memo_.end(), Memo{{}, 0, kNone});
  } else {
    memo_ = std::vector<Memo>(memos, Memo{{}, 0, kNone});
  }
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
      FrameHash(mapping, address), static_cast<uint32_t>(tables_.frames.size()), &added, [&](uint32_t id) {
        return tables_.frames[id].address == address && tables_.frames[id].mapping == mapping;
      });
  if (added) tables_.frames.push_back({mapping, address});
  return frame;
}

uint32_t Interner::NodeOf(uint32_t parent, uint32_t frame) {
  bool added = false;
  const uint64_t key = static_cast<uint64_t>(parent) << 32 | frame;
  const uint32_t node = nodes_.FindOrAdd(
      hash_internal::Fold(key ^ 0xa0761d6478bd642f, 0xe7037ed1a0b428db),
      static_cast<uint32_t>(tables_.nodes.size()), &added,
      [&](uint32_t id) { return tables_.nodes[id].parent == parent && tables_.nodes[id].frame == frame; });
  if (added) {
    tables_.nodes.push_back({parent, frame});
    stack_at_.push_back(kNone);
  }
  return node;
}

uint32_t Interner::StackOf(uint32_t leaf, Origin origin, uint8_t flags) {
  for (uint32_t stack = stack_at_[leaf]; stack != kNone; stack = next_stack_[stack]) {
    const Stack& known = tables_.stacks[stack];
    if (known.origin == origin && known.flags == flags) return stack;
  }
  const uint32_t stack = static_cast<uint32_t>(tables_.stacks.size());
  tables_.stacks.push_back({leaf, origin, flags});
  next_stack_.push_back(stack_at_[leaf]);
  stack_at_[leaf] = stack;
  if (MemoIsSmall(memo_.size(), tables_.stacks.size())) GrowMemo();
  return stack;
}

void Interner::Remember(Hash128 hash, uint64_t place, uint32_t id) {
  Memo* set = &memo_[MemoSet(hash)];
  // The older one gives way.
  for (size_t way = kWays - 1; way > 0; --way) set[way] = set[way - 1];
  set[0] = {hash, place, id};
}

void Interner::GrowMemo() {
  const std::vector<Memo> old = std::exchange(memo_, std::vector<Memo>(memo_.size() * 2, Memo{{}, 0, kNone}));
  for (size_t at = old.size(); at-- > 0;) {
    if (old[at].id != kNone) Remember(old[at].hash, old[at].place, old[at].id);
  }
}

size_t Interner::memory_bytes() const {
  return frames_.memory_bytes() + nodes_.memory_bytes() + (stack_at_.size() + next_stack_.size()) * 4 +
         std::min(memo_.size(), tables_.stacks.size() * 2) * sizeof(Memo) +
         tables_.frames.size() * sizeof(Frame) + tables_.nodes.size() * sizeof(Node) +
         tables_.stacks.size() * sizeof(Stack) + tables_.tasks.size() * sizeof(Task) +
         tables_.mappings.size() * sizeof(Mapping);
}

}  // namespace xenprof::merge
