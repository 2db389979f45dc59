// The tree of functions and inlined calls in .debug_info.
#ifndef XENPROF_SYMBOLS_DWARF_FUNCTIONS_H_
#define XENPROF_SYMBOLS_DWARF_FUNCTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "xenprof/symbols/dwarf_sections.h"
#include "xenprof/symbols/dwarf_unit.h"

namespace xenprof::symbols {

struct DwarfFunction {
  std::string name;  // linkage name where there is one, else the plain name; empty when unknown
  bool inlined = false;
  bool plain = false;  // the name lacks what the symbol table knows: scope and parameters
  uint32_t call_file = 0,
           call_line = 0;  // of an inlined one: where it was called; file as the unit numbers them
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
};

class DwarfFunctionReader {
 public:
  explicit DwarfFunctionReader(const DwarfSections& sections) : sections_(sections) {}

  // Reads the headers of all units. A damaged one ends the list; the units before it are good.
  absl::Status ReadUnits();
  size_t unit_count() const { return units_.size(); }

  // Loads unit number `index`. Valid until the next call.
  absl::StatusOr<const DwarfUnit*> Load(size_t index);

  // Calls `add` for every function and inlined call with code in the loaded unit, callers before what they
  // call. It returns an id, which is the `caller` of what was inlined into it (-1: nothing was).
  void ForEachFunction(const std::function<int64_t(DwarfFunction& function, int64_t caller)>& add);

 private:
  // Name of the entry at `offset` in `unit`, through its origin or specification.
  struct Name {
    std::string text;
    bool linkage = false;
  };
  Name NameAt(const DwarfUnit& unit, uint64_t offset, int depth);
  Name NameOfReference(const DwarfUnit& unit, const DwarfValue& reference, int depth);

  const DwarfSections& sections_;
  std::vector<uint64_t> units_;  // offsets in .debug_info
  DwarfUnit unit_;
  absl::flat_hash_map<uint64_t, Name> names_;  // of entries of unit_, by offset in it
  std::shared_ptr<DwarfUnit> other_;           // the other unit last referred to
};

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_DWARF_FUNCTIONS_H_
