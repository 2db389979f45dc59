#include "xenprof/symbols/dwarf_functions.h"

#include <algorithm>

namespace xenprof::symbols {
namespace {

constexpr int kMaxReferences = 16;  // origin of origin of ...; a chain that loops ends here
constexpr size_t kMaxNesting = 1024;
enum : uint8_t { kUtCompile = 1, kUtPartial = 3 };

// DW_LANG_C89, C, C99, C11 (DWARF 5, table 7.17), and assemblers: what has plain names in the symbol table
// too.
bool IsC(uint32_t language) {
  return language == 0x01 || language == 0x02 || language == 0x0c || language == 0x1d || language == 0x8001;
}

// Types that hold no code. C++ classes do (their methods), so those are not among them.
bool HoldsNoCode(uint32_t tag, uint32_t language) {
  if (tag == kTagArrayType || tag == kTagEnumerationType || tag == kTagSubroutineType) return true;
  return IsC(language) && (tag == kTagStructureType || tag == kTagUnionType);
}

}  // namespace

absl::Status DwarfFunctionReader::ReadUnits() {
  for (uint64_t offset = 0; offset < sections_.info.size();) {
    DwarfUnit unit;
    const absl::Status status = unit.ReadHeader(sections_, offset);
    if (!status.ok()) return status;
    if (unit.type() == kUtCompile || unit.type() == kUtPartial) units_.push_back(offset);
    offset = unit.end();
  }
  return absl::OkStatus();
}

absl::StatusOr<const DwarfUnit*> DwarfFunctionReader::Load(size_t index) {
  names_.clear();
  absl::Status status = unit_.ReadHeader(sections_, units_[index]);
  if (status.ok()) status = unit_.Load(sections_);
  if (!status.ok()) return status;
  return &unit_;
}

DwarfFunctionReader::Name DwarfFunctionReader::NameOfReference(const DwarfUnit& unit,
                                                               const DwarfValue& reference, int depth) {
  uint64_t offset = 0, info_offset = 0;
  if (unit.Reference(reference, &offset, &info_offset)) return NameAt(unit, offset, depth);
  if (info_offset == 0) return {};
  const auto after = std::upper_bound(units_.begin(), units_.end(), info_offset);
  if (after == units_.begin()) return {};
  const uint64_t start = *(after - 1);
  // The unit being walked stays loaded; others take turns in one place.
  if (unit_.offset() == start) return NameAt(unit_, info_offset - start, depth);
  std::shared_ptr<DwarfUnit> other = other_;  // a reference out of it may replace other_
  if (other == nullptr || other->offset() != start) {
    other = std::make_shared<DwarfUnit>();
    if (!other->ReadHeader(sections_, start).ok() || !other->Load(sections_).ok()) return {};
    other_ = other;
  }
  return other->Holds(info_offset) ? NameAt(*other, info_offset - start, depth) : Name{};
}

DwarfFunctionReader::Name DwarfFunctionReader::NameAt(const DwarfUnit& unit, uint64_t offset, int depth) {
  if (depth > kMaxReferences) return {};
  const bool memorable = depth > 0 && &unit == &unit_;
  if (memorable) {
    const auto known = names_.find(offset);
    if (known != names_.end()) return known->second;
  }
  DwarfCursor at = unit.Entries();
  if (offset < at.offset()) return {};
  at.Seek(offset);
  const DwarfAbbrev* abbrev = unit.Abbrev(at.Uleb());
  if (abbrev == nullptr) return {};
  DwarfValue name, linkage, origin;
  for (const DwarfAbbrev::Attribute& attribute : unit.Attributes(*abbrev)) {
    switch (attribute.name) {
      case kAtName:
        name = unit.Read(at, attribute);
        break;
      case kAtLinkageName:
      case kAtMipsLinkageName:
        linkage = unit.Read(at, attribute);
        break;
      case kAtAbstractOrigin:
      case kAtSpecification:
        origin = unit.Read(at, attribute);
        break;
      default:
        unit.Skip(at, attribute);
    }
  }
  Name found{.text = std::string(unit.Text(sections_, linkage)), .linkage = true};
  if (found.text.empty() && origin.form != 0) found = NameOfReference(unit, origin, depth + 1);
  if (found.text.empty()) found = {.text = std::string(unit.Text(sections_, name)), .linkage = false};
  if (memorable) names_[offset] = found;
  return found;
}

void DwarfFunctionReader::ForEachFunction(
    const std::function<int64_t(DwarfFunction& function, int64_t caller)>& add) {
  const DwarfUnit& unit = unit_;
  DwarfCursor at = unit.Entries();
  std::vector<int64_t> open;  // per level of nesting: the function around it
  int64_t around = -1;
  DwarfFunction function;
  while (!at.AtEnd() && !at.bad()) {
    const uint64_t entry_at = at.offset();
    const uint64_t code = at.Uleb();
    if (code == 0) {
      if (open.empty()) break;
      around = open.back();
      open.pop_back();
      continue;
    }
    const DwarfAbbrev* abbrev = unit.Abbrev(code);
    if (abbrev == nullptr) break;  // damaged: what follows cannot be read
    int64_t inside = around;
    if (abbrev->tag == kTagSubprogram || abbrev->tag == kTagInlinedSubroutine) {
      DwarfValue low, high, ranges;
      function.call_file = function.call_line = 0;
      for (const DwarfAbbrev::Attribute& attribute : unit.Attributes(*abbrev)) {
        switch (attribute.name) {
          case kAtLowPc:
            low = unit.Read(at, attribute);
            break;
          case kAtHighPc:
            high = unit.Read(at, attribute);
            break;
          case kAtRanges:
            ranges = unit.Read(at, attribute);
            break;
          case kAtCallFile:
            function.call_file = static_cast<uint32_t>(unit.Read(at, attribute).number);
            break;
          case kAtCallLine:
            function.call_line = static_cast<uint32_t>(unit.Read(at, attribute).number);
            break;
          default:
            unit.Skip(at, attribute);
        }
      }
      function.ranges.clear();
      unit.Ranges(sections_, ranges, low, high, &function.ranges);
      if (!function.ranges.empty()) {
        function.inlined = abbrev->tag == kTagInlinedSubroutine;
        Name name = NameAt(unit, entry_at, 0);
        function.name = std::move(name.text);
        function.plain = !name.linkage && !IsC(unit.language());
        inside = add(function, function.inlined ? around : -1);
      }
    } else if (abbrev->has_children && abbrev->has_sibling && HoldsNoCode(abbrev->tag, unit.language())) {
      uint64_t sibling = 0;
      for (const DwarfAbbrev::Attribute& attribute : unit.Attributes(*abbrev)) {
        if (attribute.name == kAtSibling) {
          uint64_t elsewhere = 0;
          if (!unit.Reference(unit.Read(at, attribute), &sibling, &elsewhere)) sibling = 0;
        } else {
          unit.Skip(at, attribute);
        }
      }
      if (sibling > at.offset()) {
        at.Seek(sibling);
        continue;
      }
    } else {
      unit.SkipAll(at, *abbrev);
    }
    if (abbrev->has_children) {
      if (open.size() >= kMaxNesting) break;
      open.push_back(around);
      around = inside;
    }
  }
}

}  // namespace xenprof::symbols
