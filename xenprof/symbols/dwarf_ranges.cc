// Address ranges of entries (DWARF 5, section 2.17; .debug_ranges of older versions).
#include "xenprof/symbols/dwarf_forms.h"
#include "xenprof/symbols/dwarf_unit.h"

namespace xenprof::symbols {
namespace {

enum : uint8_t {  // DWARF 5, table 7.30
  kRleEndOfList = 0,
  kRleBaseAddressx = 1,
  kRleStartxEndx = 2,
  kRleStartxLength = 3,
  kRleOffsetPair = 4,
  kRleBaseAddress = 5,
  kRleStartEnd = 6,
  kRleStartLength = 7,
};

constexpr size_t kMaxRangesOfOneList = 1 << 16;

bool IsConstant(uint32_t form) {
  return form == kFormData1 || form == kFormData2 || form == kFormData4 || form == kFormData8 ||
         form == kFormUdata || form == kFormSdata || form == kFormImplicitConst;
}

}  // namespace

void DwarfUnit::Ranges(const DwarfSections& sections, const DwarfValue& ranges, const DwarfValue& low,
                       const DwarfValue& high, std::vector<std::pair<uint64_t, uint64_t>>* out) const {
  if (ranges.form != 0) {
    if (version_ < 5) return OldRangeList(sections, ranges.number, out);
    uint64_t offset = ranges.number;
    if (ranges.form == kFormRnglistx) {
      if (ranges.number > sections.rnglists.size()) return;
      DwarfCursor at(sections.rnglists);
      at.Seek(rnglists_base_ + ranges.number * offset_bytes());
      offset = rnglists_base_ + at.Sized(offset_bytes());
      if (at.bad()) return;
    }
    return RangeList(sections, offset, out);
  }
  uint64_t start = 0, end = 0;
  if (!Address(sections, low, &start) || high.form == 0) return;
  if (!Address(sections, high, &end)) {
    if (!IsConstant(high.form)) return;
    end = start + high.number;
  }
  if (start < end) out->emplace_back(start, end);
}

void DwarfUnit::RangeList(const DwarfSections& sections, uint64_t offset,
                          std::vector<std::pair<uint64_t, uint64_t>>* out) const {
  DwarfCursor at(sections.rnglists);
  at.Seek(offset);
  uint64_t base = low_pc_;
  for (size_t i = 0; i < kMaxRangesOfOneList && !at.bad(); ++i) {
    uint64_t start = 0, end = 0;
    switch (at.U8()) {
      case kRleEndOfList:
        return;
      case kRleBaseAddressx:
        base = IndexedAddress(sections, at.Uleb());
        continue;
      case kRleBaseAddress:
        base = at.Sized(address_bytes_);
        continue;
      case kRleStartxEndx:
        start = IndexedAddress(sections, at.Uleb());
        end = IndexedAddress(sections, at.Uleb());
        break;
      case kRleStartxLength:
        start = IndexedAddress(sections, at.Uleb());
        end = start + at.Uleb();
        break;
      case kRleOffsetPair:
        start = base + at.Uleb();
        end = base + at.Uleb();
        break;
      case kRleStartEnd:
        start = at.Sized(address_bytes_);
        end = at.Sized(address_bytes_);
        break;
      case kRleStartLength:
        start = at.Sized(address_bytes_);
        end = start + at.Uleb();
        break;
      default:
        return;
    }
    if (!at.bad() && start < end) out->emplace_back(start, end);
  }
}

void DwarfUnit::OldRangeList(const DwarfSections& sections, uint64_t offset,
                             std::vector<std::pair<uint64_t, uint64_t>>* out) const {
  DwarfCursor at(sections.ranges);
  at.Seek(offset);
  uint64_t base = low_pc_;
  const uint64_t selects_base = address_bytes_ == 8 ? ~uint64_t{0} : 0xffffffff;
  for (size_t i = 0; i < kMaxRangesOfOneList && !at.bad(); ++i) {
    const uint64_t start = at.Sized(address_bytes_);
    const uint64_t end = at.Sized(address_bytes_);
    if (at.bad() || (start == 0 && end == 0)) return;
    if (start == selects_base) {
      base = end;
    } else if (start < end) {
      out->emplace_back(base + start, base + end);
    }
  }
}

}  // namespace xenprof::symbols
