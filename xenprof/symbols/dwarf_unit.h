// Units of .debug_info: their header, their abbreviations, and the values of attributes (DWARF 5,
// sections 7.5 and 7.6; versions 2 to 5).
#ifndef XENPROF_SYMBOLS_DWARF_UNIT_H_
#define XENPROF_SYMBOLS_DWARF_UNIT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "xenprof/symbols/dwarf_cursor.h"
#include "xenprof/symbols/dwarf_sections.h"

namespace xenprof::symbols {

// Tags, attributes and languages that matter here; DWARF 5, tables 7.3, 7.5 and 7.17.
enum DwarfTag : uint32_t {
  kTagArrayType = 0x01,
  kTagEnumerationType = 0x04,
  kTagCompileUnit = 0x11,
  kTagStructureType = 0x13,
  kTagSubroutineType = 0x15,
  kTagUnionType = 0x17,
  kTagInlinedSubroutine = 0x1d,
  kTagSubprogram = 0x2e,
  kTagPartialUnit = 0x3c,
};
enum DwarfAttribute : uint32_t {
  kAtSibling = 0x01,
  kAtName = 0x03,
  kAtStmtList = 0x10,
  kAtLowPc = 0x11,
  kAtHighPc = 0x12,
  kAtLanguage = 0x13,
  kAtCompDir = 0x1b,
  kAtAbstractOrigin = 0x31,
  kAtSpecification = 0x47,
  kAtRanges = 0x55,
  kAtCallFile = 0x58,
  kAtCallLine = 0x59,
  kAtLinkageName = 0x6e,
  kAtStrOffsetsBase = 0x72,
  kAtAddrBase = 0x73,
  kAtRnglistsBase = 0x74,
  kAtMipsLinkageName = 0x2007,
};

struct DwarfAbbrev {
  struct Attribute {
    uint32_t name = 0;
    uint16_t form = 0;
    int16_t size = -1;     // bytes; -1 when that depends on the value
    int64_t implicit = 0;  // value of DW_FORM_implicit_const
  };
  uint32_t tag = 0;  // 0: no such abbreviation
  bool has_children = false;
  bool has_sibling = false;
  int32_t fixed_size = -1;  // bytes of all attributes when that does not depend on their values
  uint32_t first_attribute = 0, attribute_count = 0;  // see DwarfUnit::Attributes
};

// The value of an attribute as stored; what it means depends on `form`.
struct DwarfValue {
  uint32_t form = 0;  // 0: absent
  uint64_t number = 0;
  absl::string_view text;  // of DW_FORM_string and blocks
};

class DwarfUnit {
 public:
  // Of the unit at `offset` of .debug_info, header only.
  absl::Status ReadHeader(const DwarfSections& sections, uint64_t offset);
  // The bytes and abbreviations, and what the unit's own entry says.
  absl::Status Load(const DwarfSections& sections);

  uint64_t offset() const { return offset_; }
  uint64_t end() const { return end_; }
  bool Holds(uint64_t info_offset) const { return offset_ <= info_offset && info_offset < end_; }
  uint8_t type() const { return type_; }  // DW_UT_*, 1 for versions before 5

  // The unit's own entry.
  uint32_t tag() const { return tag_; }
  absl::string_view comp_dir() const { return comp_dir_; }
  uint64_t low_pc() const { return low_pc_; }
  uint32_t language() const { return language_; }
  bool has_lines() const { return has_lines_; }
  uint64_t lines_offset() const { return lines_offset_; }

  // Where its entries begin, with offsets relative to the unit's start.
  DwarfCursor Entries() const;
  const DwarfAbbrev* Abbrev(uint64_t code) const {
    return code - 1 < abbrevs_.size() ? &abbrevs_[code - 1] : OddAbbrev(code);
  }
  absl::Span<const DwarfAbbrev::Attribute> Attributes(const DwarfAbbrev& abbrev) const {
    return absl::MakeConstSpan(attributes_).subspan(abbrev.first_attribute, abbrev.attribute_count);
  }
  // Relative to the unit's start: of a DW_FORM_ref*, or of a DW_FORM_ref_addr into this unit. False when the
  // value is no reference; `*info_offset` is then the offset in .debug_info when it leads to another unit,
  // else 0.
  bool Reference(const DwarfValue& value, uint64_t* offset, uint64_t* info_offset) const;

  DwarfValue Read(DwarfCursor& at, const DwarfAbbrev::Attribute& attribute) const;
  void Skip(DwarfCursor& at, const DwarfAbbrev::Attribute& attribute) const {
    if (attribute.size >= 0) return at.Skip(attribute.size);
    SkipSizeless(at, attribute);
  }
  void SkipAll(DwarfCursor& at, const DwarfAbbrev& abbrev) const {
    if (abbrev.fixed_size >= 0) return at.Skip(abbrev.fixed_size);
    for (const DwarfAbbrev::Attribute& attribute : Attributes(abbrev)) Skip(at, attribute);
  }

  absl::string_view Text(const DwarfSections& sections, const DwarfValue& value) const;
  // Addresses; false when the form is none.
  bool Address(const DwarfSections& sections, const DwarfValue& value, uint64_t* address) const;
  // Appends the [low, high) that DW_AT_ranges, or DW_AT_low_pc and DW_AT_high_pc, describe.
  void Ranges(const DwarfSections& sections, const DwarfValue& ranges, const DwarfValue& low,
              const DwarfValue& high, std::vector<std::pair<uint64_t, uint64_t>>* out) const;

 private:
  absl::Status ReadAbbrevs(const DwarfSections& sections);
  const DwarfAbbrev* OddAbbrev(uint64_t code) const;
  void SkipSizeless(DwarfCursor& at, const DwarfAbbrev::Attribute& attribute) const;
  int FixedSize(uint32_t form) const;
  void RangeList(const DwarfSections& sections, uint64_t offset,
                 std::vector<std::pair<uint64_t, uint64_t>>* out) const;
  void OldRangeList(const DwarfSections& sections, uint64_t offset,
                    std::vector<std::pair<uint64_t, uint64_t>>* out) const;
  uint64_t IndexedAddress(const DwarfSections& sections, uint64_t index) const;
  unsigned offset_bytes() const { return dwarf64_ ? 8 : 4; }

  uint64_t offset_ = 0, end_ = 0, entries_at_ = 0, abbrev_offset_ = 0;
  bool dwarf64_ = false;
  uint16_t version_ = 0;
  uint8_t type_ = 1, address_bytes_ = 8;

  std::string buffer_;
  absl::string_view bytes_;           // from the unit's start
  std::vector<DwarfAbbrev> abbrevs_;  // by code - 1, as compilers number them
  absl::flat_hash_map<uint64_t, DwarfAbbrev> odd_abbrevs_;
  std::vector<DwarfAbbrev::Attribute> attributes_;  // of all of them

  uint32_t tag_ = 0, language_ = 0;
  absl::string_view comp_dir_;
  uint64_t low_pc_ = 0, lines_offset_ = 0;
  uint64_t str_offsets_base_ = 0, addr_base_ = 0, rnglists_base_ = 0;
  bool has_lines_ = false;
};

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_DWARF_UNIT_H_
