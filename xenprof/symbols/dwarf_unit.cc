#include "xenprof/symbols/dwarf_unit.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "xenprof/symbols/dwarf_forms.h"

namespace xenprof::symbols {
namespace {

enum : uint8_t { kUtSkeleton = 4, kUtSplitCompile = 5, kUtType = 2, kUtSplitType = 6 };

constexpr uint64_t kMaxUnitBytes = 512 << 20;

}  // namespace

absl::Status DwarfUnit::ReadHeader(const DwarfSections& sections, uint64_t offset) {
  offset_ = offset;
  const auto damaged = [offset](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(".debug_info: unit at ", offset, ": ", what));
  };
  std::string front;
  constexpr uint64_t kLongestHeader = 40;
  const uint64_t left = sections.info.size() - std::min(offset, sections.info.size());
  absl::StatusOr<absl::string_view> bytes =
      sections.info.Slice(offset, std::min(left, kLongestHeader), front);
  if (!bytes.ok()) return bytes.status();
  DwarfCursor at(*bytes);
  uint64_t size = at.U32();
  dwarf64_ = size == 0xffffffff;
  if (dwarf64_) size = at.U64();
  if (at.bad() || size > left - at.offset()) return damaged("lies outside of the section");
  end_ = offset + at.offset() + size;
  version_ = at.U16();
  if (version_ < 2 || version_ > 5) return damaged(absl::StrCat("version ", version_, " is not known"));
  type_ = 1;
  if (version_ >= 5) {
    type_ = at.U8();
    address_bytes_ = at.U8();
    abbrev_offset_ = at.Sized(offset_bytes());
    if (type_ == kUtSkeleton || type_ == kUtSplitCompile) at.Skip(8);
    if (type_ == kUtType || type_ == kUtSplitType) at.Skip(8 + offset_bytes());
  } else {
    abbrev_offset_ = at.Sized(offset_bytes());
    address_bytes_ = at.U8();
  }
  if (at.bad()) return damaged("header cut off");
  if (address_bytes_ != 8 && address_bytes_ != 4) return damaged("addresses of a strange size");
  entries_at_ = at.offset();
  return absl::OkStatus();
}

absl::Status DwarfUnit::Load(const DwarfSections& sections) {
  if (end_ - offset_ > kMaxUnitBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(".debug_info: unit at ", offset_, " is too large"));
  }
  absl::StatusOr<absl::string_view> bytes = sections.info.Slice(offset_, end_ - offset_, buffer_);
  if (!bytes.ok()) return bytes.status();
  bytes_ = *bytes;
  absl::Status status = ReadAbbrevs(sections);
  if (!status.ok()) return status;

  tag_ = language_ = 0;
  comp_dir_ = {};
  low_pc_ = lines_offset_ = 0;
  has_lines_ = false;
  // Without an attribute of their own, version 5's tables begin after the header of the first contribution.
  str_offsets_base_ = version_ >= 5 ? (dwarf64_ ? 16 : 8) : 0;
  addr_base_ = version_ >= 5 ? (dwarf64_ ? 16 : 8) : 0;
  rnglists_base_ = version_ >= 5 ? (dwarf64_ ? 20 : 12) : 0;

  DwarfCursor at = Entries();
  const DwarfAbbrev* abbrev = Abbrev(at.Uleb());
  if (abbrev == nullptr) return absl::OkStatus();  // an empty unit
  tag_ = abbrev->tag;
  DwarfValue comp_dir, low_pc;
  for (const DwarfAbbrev::Attribute& attribute : Attributes(*abbrev)) {
    const DwarfValue value = Read(at, attribute);
    switch (attribute.name) {
      case kAtCompDir:
        comp_dir = value;
        break;
      case kAtLowPc:
        low_pc = value;
        break;
      case kAtLanguage:
        language_ = value.number;
        break;
      case kAtStmtList:
        has_lines_ = true;
        lines_offset_ = value.number;
        break;
      case kAtStrOffsetsBase:
        str_offsets_base_ = value.number;
        break;
      case kAtAddrBase:
        addr_base_ = value.number;
        break;
      case kAtRnglistsBase:
        rnglists_base_ = value.number;
        break;
      default:
        break;
    }
  }
  comp_dir_ = Text(sections, comp_dir);
  Address(sections, low_pc, &low_pc_);
  return absl::OkStatus();
}

DwarfCursor DwarfUnit::Entries() const {
  DwarfCursor at(bytes_);
  at.Seek(entries_at_);
  return at;
}

const DwarfAbbrev* DwarfUnit::OddAbbrev(uint64_t code) const {
  if (odd_abbrevs_.empty()) return nullptr;
  const auto it = odd_abbrevs_.find(code);
  return it == odd_abbrevs_.end() ? nullptr : &it->second;
}

int DwarfUnit::FixedSize(uint32_t form) const {
  switch (form) {
    case kFormFlagPresent:
    case kFormImplicitConst:
      return 0;
    case kFormData1:
    case kFormFlag:
    case kFormRef1:
    case kFormStrx1:
    case kFormAddrx1:
      return 1;
    case kFormData2:
    case kFormRef2:
    case 0x26:  // strx2
    case 0x2a:
      return 2;  // addrx2
    case 0x27:   // strx3
    case 0x2b:
      return 3;  // addrx3
    case kFormData4:
    case kFormRef4:
    case kFormStrx4:
    case kFormAddrx4:
    case kFormRefSup4:
      return 4;
    case kFormData8:
    case kFormRef8:
    case kFormRefSig8:
    case kFormRefSup8:
      return 8;
    case kFormData16:
      return 16;
    case kFormAddr:
      return address_bytes_;
    case kFormRefAddr:
      return version_ <= 2 ? address_bytes_ : offset_bytes();
    case kFormStrp:
    case kFormSecOffset:
    case kFormLineStrp:
    case kFormStrpSup:
    case kFormGnuRefAlt:
    case kFormGnuStrpAlt:
      return offset_bytes();
    default:
      return -1;
  }
}

absl::Status DwarfUnit::ReadAbbrevs(const DwarfSections& sections) {
  abbrevs_.clear();
  odd_abbrevs_.clear();
  attributes_.clear();
  DwarfCursor at(sections.abbrev);
  at.Seek(abbrev_offset_);
  while (!at.bad()) {
    const uint64_t code = at.Uleb();
    if (code == 0) break;
    DwarfAbbrev abbrev;
    abbrev.tag = static_cast<uint32_t>(at.Uleb());
    abbrev.has_children = at.U8() != 0;
    abbrev.fixed_size = 0;
    abbrev.first_attribute = static_cast<uint32_t>(attributes_.size());
    while (!at.bad()) {
      DwarfAbbrev::Attribute attribute;
      attribute.name = static_cast<uint32_t>(at.Uleb());
      attribute.form = static_cast<uint16_t>(at.Uleb());
      if (attribute.form == kFormImplicitConst) attribute.implicit = at.Sleb();
      if (attribute.name == 0 && attribute.form == 0) break;
      if (attribute.name == kAtSibling) abbrev.has_sibling = true;
      attribute.size = static_cast<int16_t>(FixedSize(attribute.form));
      if (abbrev.fixed_size >= 0)
        abbrev.fixed_size = attribute.size < 0 ? -1 : abbrev.fixed_size + attribute.size;
      attributes_.push_back(attribute);
      ++abbrev.attribute_count;
    }
    if (code == abbrevs_.size() + 1) {
      abbrevs_.push_back(std::move(abbrev));
    } else if (code - 1 >= abbrevs_.size()) {
      odd_abbrevs_[code] = std::move(abbrev);
    }
  }
  if (at.bad()) {
    return absl::DataLossError(absl::StrCat(".debug_abbrev: table at ", abbrev_offset_, " is cut off"));
  }
  return absl::OkStatus();
}

DwarfValue DwarfUnit::Read(DwarfCursor& at, const DwarfAbbrev::Attribute& attribute) const {
  DwarfValue value{.form = attribute.form, .number = 0, .text = {}};
  if (value.form == kFormIndirect) value.form = static_cast<uint32_t>(at.Uleb());
  switch (value.form) {
    case kFormFlagPresent:
      value.number = 1;
      break;
    case kFormImplicitConst:
      value.number = attribute.implicit;
      break;
    case kFormString:
      value.text = at.CString();
      break;
    case kFormSdata:
      value.number = at.Sleb();
      break;
    case kFormUdata:
    case kFormRefUdata:
    case kFormStrx:
    case kFormAddrx:
    case kFormLoclistx:
    case kFormRnglistx:
    case kFormGnuAddrIndex:
    case kFormGnuStrIndex:
      value.number = at.Uleb();
      break;
    case kFormBlock:
    case kFormExprloc:
      value.text = at.Bytes(at.Uleb());
      break;
    case kFormBlock1:
      value.text = at.Bytes(at.U8());
      break;
    case kFormBlock2:
      value.text = at.Bytes(at.U16());
      break;
    case kFormBlock4:
      value.text = at.Bytes(at.U32());
      break;
    case kFormData16:
      at.Skip(16);
      break;
    default: {
      const int size = FixedSize(value.form);
      if (size < 0) {
        at.Skip(at.left() + 1);  // an unknown form: nothing after it can be read
      } else {
        value.number = at.Sized(size);
      }
    }
  }
  return value;
}

void DwarfUnit::SkipSizeless(DwarfCursor& at, const DwarfAbbrev::Attribute& attribute) const {
  if (attribute.form == kFormUdata || attribute.form == kFormSdata || attribute.form == kFormRefUdata) {
    at.SkipLeb();
  } else {
    Read(at, attribute);
  }
}

bool DwarfUnit::Reference(const DwarfValue& value, uint64_t* offset, uint64_t* info_offset) const {
  *info_offset = 0;
  switch (value.form) {
    case kFormRef1:
    case kFormRef2:
    case kFormRef4:
    case kFormRef8:
    case kFormRefUdata:
      *offset = value.number;
      return value.number < bytes_.size();
    case kFormRefAddr:
      if (Holds(value.number)) {
        *offset = value.number - offset_;
        return true;
      }
      *info_offset = value.number;
      return false;
    default:
      return false;
  }
}

absl::string_view DwarfUnit::Text(const DwarfSections& sections, const DwarfValue& value) const {
  switch (value.form) {
    case kFormString:
      return value.text;
    case kFormStrp:
      return DwarfStringAt(sections.str, value.number);
    case kFormLineStrp:
      return DwarfStringAt(sections.line_str, value.number);
    case kFormStrx:
    case kFormStrx1:
    case 0x26:
    case 0x27:
    case kFormStrx4:
    case kFormGnuStrIndex: {
      DwarfCursor at(sections.str_offsets);
      if (value.number > sections.str_offsets.size()) return {};
      at.Seek(str_offsets_base_ + value.number * offset_bytes());
      const uint64_t offset = at.Sized(offset_bytes());
      return at.bad() ? absl::string_view() : DwarfStringAt(sections.str, offset);
    }
    default:
      return {};
  }
}

uint64_t DwarfUnit::IndexedAddress(const DwarfSections& sections, uint64_t index) const {
  if (index > sections.addr.size()) return 0;
  DwarfCursor at(sections.addr);
  at.Seek(addr_base_ + index * address_bytes_);
  return at.Sized(address_bytes_);
}

bool DwarfUnit::Address(const DwarfSections& sections, const DwarfValue& value, uint64_t* address) const {
  switch (value.form) {
    case kFormAddr:
      *address = value.number;
      return true;
    case kFormAddrx:
    case kFormAddrx1:
    case 0x2a:
    case 0x2b:
    case kFormAddrx4:
    case kFormGnuAddrIndex:
      *address = IndexedAddress(sections, value.number);
      return true;
    default:
      return false;
  }
}

}  // namespace xenprof::symbols
