#include "xenprof/merge/interner.h"

#include <utility>

namespace xenprof::merge {

Tables Interner::Reset() {
  Tables old = std::exchange(tables_, Tables());
  frames_.clear();
  nodes_.clear();
  stacks_.clear();
  memo_.clear();
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
  auto [entry, added] = frames_.try_emplace({address, mapping}, static_cast<uint32_t>(tables_.frames.size()));
  if (added) tables_.frames.push_back({mapping, address});
  return entry->second;
}

uint32_t Interner::NodeOf(uint32_t parent, uint32_t frame) {
  auto [entry, added] = nodes_.try_emplace(static_cast<uint64_t>(parent) << 32 | frame,
                                           static_cast<uint32_t>(tables_.nodes.size()));
  if (added) tables_.nodes.push_back({parent, frame});
  return entry->second;
}

uint32_t Interner::StackOf(uint32_t leaf, Origin origin, uint8_t flags) {
  const uint64_t kind = static_cast<uint64_t>(origin) | static_cast<uint64_t>(flags) << 4;
  auto [entry, added] = stacks_.try_emplace(static_cast<uint64_t>(leaf) << 32 | kind,
                                            static_cast<uint32_t>(tables_.stacks.size()));
  if (added) tables_.stacks.push_back({leaf, origin, flags});
  return entry->second;
}

bool Interner::Recall(Hash128 hash, uint64_t space, uint32_t* stack) const {
  auto found = memo_.find({hash, space});
  if (found == memo_.end()) return false;
  *stack = found->second;
  return true;
}

void Interner::Remember(Hash128 hash, uint64_t space, uint32_t stack) { memo_[{hash, space}] = stack; }

size_t Interner::memory_bytes() const {
  return frames_.capacity() * (sizeof(FrameKey) + 9) + (nodes_.capacity() + stacks_.capacity()) * 17 +
         memo_.capacity() * (sizeof(MemoKey) + 9) + tables_.frames.capacity() * sizeof(Frame) +
         tables_.nodes.capacity() * sizeof(Node) + tables_.stacks.capacity() * sizeof(Stack) +
         tables_.tasks.capacity() * sizeof(Task) + tables_.mappings.capacity() * sizeof(Mapping);
}

}  // namespace xenprof::merge
