// Functions already found in one address space, so that the same addresses cost no reading the next time.
#ifndef XENPROF_SYMBOLS_FUNCTION_CACHE_H_
#define XENPROF_SYMBOLS_FUNCTION_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "xenprof/symbols/symbolizer.h"

namespace xenprof::symbols {

class FunctionCache {
 public:
  // Beyond this many functions the whole cache is dropped before the next search (never between Missing and
  // Functions).
  explicit FunctionCache(size_t max_functions = 8192) : max_functions_(max_functions) {}

  struct Found {
    uint64_t start = 0;
    uint64_t end = 0;    // greater than the address it was found for
    std::string name;    // empty: only its bounds are known
    uint32_t group = 0;  // of one with a name; 0 stays when others are dropped (ForgetGroups)
  };

  // Starts a search: those of `addresses` (ascending) about which nothing is known yet.
  std::vector<uint64_t> Missing(absl::Span<const uint64_t> addresses);

  void Insert(uint64_t address, Found found);
  // `address` is in no function.
  void InsertUnnamed(uint64_t address);

  // Functions that hold `addresses`, ascending and not overlapping.
  // `named` counts the addresses among them that are in one with a name. With `accepts`, only of groups it is
  // true for.
  std::vector<Function> Functions(absl::Span<const uint64_t> addresses, size_t* named,
                                  const std::function<bool(uint32_t group)>& accepts = nullptr) const;

  // Everything of a group other than 0, and what was in no function.
  void ForgetGroups();
  void Clear();
  size_t size() const { return functions_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Name {
    std::string text;
    uint32_t group;
  };
  struct Entry {
    uint64_t end;
    std::unique_ptr<const Name> name;  // null: none, as for most of a stripped program
    uint32_t group() const { return name == nullptr ? 0 : name->group; }
  };
  const std::pair<const uint64_t, Entry>* Find(uint64_t address) const;
  static size_t BytesOf(const Entry& entry);

  size_t max_functions_;
  // By start; they do not overlap.
  absl::btree_map<uint64_t, Entry> functions_;
  absl::flat_hash_set<uint64_t> unnamed_;
  size_t bytes_ = 0;
};

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_FUNCTION_CACHE_H_
