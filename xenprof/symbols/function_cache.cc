#include "xenprof/symbols/function_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace xenprof::symbols {

const std::pair<const uint64_t, FunctionCache::Entry>* FunctionCache::Find(uint64_t address) const {
  auto it = functions_.upper_bound(address);
  if (it == functions_.begin()) return nullptr;
  --it;
  return address < it->second.end ? &*it : nullptr;
}

std::vector<uint64_t> FunctionCache::Missing(absl::Span<const uint64_t> addresses) {
  if (functions_.size() >= max_functions_) Clear();
  if (unnamed_.size() >= max_functions_) unnamed_.clear();
  std::vector<uint64_t> missing;
  const std::pair<const uint64_t, Entry>* found = nullptr;
  for (uint64_t address : addresses) {
    if (found == nullptr || address >= found->second.end) found = Find(address);
    if (found == nullptr && !unnamed_.contains(address)) missing.push_back(address);
  }
  return missing;
}

void FunctionCache::Insert(uint64_t address, Found found) {
  if (address < found.start || address >= found.end || Find(address) != nullptr) return;
  // Tables that contradict what is known are cut to fit.
  auto next = functions_.upper_bound(address);
  if (next != functions_.end()) found.end = std::min(found.end, next->first);
  if (next != functions_.begin()) found.start = std::max(found.start, std::prev(next)->second.end);
  Entry entry{found.end, nullptr};
  if (!found.name.empty())
    entry.name = std::make_unique<const Name>(Name{std::move(found.name), found.group});
  bytes_ += BytesOf(entry);
  functions_.emplace(found.start, std::move(entry));
}

size_t FunctionCache::BytesOf(const Entry& entry) {
  // A tree's nodes are at least half full, 16 are the allocator's own.
  const size_t in_tree = (sizeof(uint64_t) + sizeof(Entry)) * 3 / 2;
  return entry.name == nullptr ? in_tree : in_tree + sizeof(Name) + 16 + entry.name->text.size();
}

void FunctionCache::InsertUnnamed(uint64_t address) { unnamed_.insert(address); }

std::vector<Function> FunctionCache::Functions(absl::Span<const uint64_t> addresses, size_t* named,
                                               const std::function<bool(uint32_t)>& accepts) const {
  std::vector<Function> functions;
  *named = 0;
  const std::pair<const uint64_t, Entry>* found = nullptr;
  for (uint64_t address : addresses) {
    if (found == nullptr || address >= found->second.end) found = Find(address);
    if (found == nullptr || (accepts && !accepts(found->second.group()))) continue;
    const Name* const name = found->second.name.get();
    if (name != nullptr) ++*named;
    if (!functions.empty() && functions.back().start == found->first) continue;
    functions.push_back(
        {found->first, found->second.end - found->first, name == nullptr ? std::string() : name->text});
  }
  return functions;
}

void FunctionCache::ForgetGroups() {
  unnamed_.clear();
  bytes_ = 0;
  for (auto it = functions_.begin(); it != functions_.end();) {
    if (it->second.group() != 0) {
      it = functions_.erase(it);
    } else {
      bytes_ += BytesOf(it->second);
      ++it;
    }
  }
}

void FunctionCache::Clear() {
  functions_.clear();
  unnamed_.clear();
  bytes_ = 0;
}

}  // namespace xenprof::symbols
