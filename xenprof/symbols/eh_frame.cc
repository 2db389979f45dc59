#include "xenprof/symbols/eh_frame.h"

#include <algorithm>
#include <optional>

#include "absl/strings/string_view.h"
#include "xenprof/symbols/dwarf_cursor.h"

namespace xenprof::symbols {
namespace {

// DW_EH_PE_*: the low half of an encoding is a pointer's size, the high one what it is relative to.
constexpr uint8_t kSizeMask = 0x0f;
constexpr uint8_t kRelativeMask = 0xf0;
constexpr uint8_t kAbsolute = 0x00;
constexpr uint8_t kPcRelative = 0x10;
constexpr uint8_t kSearchTable = 0x3b;  // datarel | sdata4: the only one linkers write and unwinders search

constexpr uint64_t kTableEntryBytes = 8;
constexpr size_t kMaxHeaderBytes = 64;  // of .eh_frame_hdr, before its table
constexpr size_t kMaxCieBytes = 128;    // up to the encoding of its FDEs
constexpr size_t kMaxFdeBytes = 32;     // up to the end of its range

// The bytes of a section, a few at a time: the file's source keeps what lies around them.
class SectionBytes {
 public:
  SectionBytes(const ElfFile& file, const ElfFile::Section& section)
      : source_(*file.source()), section_(section) {}

  // `size` bytes (kMostBytes at most) at `offset`, fewer where section or file end. Good until the next call.
  absl::string_view At(uint64_t offset, size_t size) {
    if (offset >= section_.size || section_.offset > ~offset) return {};
    size = std::min<uint64_t>(std::min(size, kMostBytes), section_.size - offset);
    return {bytes_, source_.ReadAt(section_.offset + offset, bytes_, size)};
  }

 private:
  static constexpr size_t kMostBytes = kMaxCieBytes;
  const ByteSource& source_;
  const ElfFile::Section& section_;
  char bytes_[kMostBytes];
};

// A pointer whose first byte is at `address`; nothing for encodings that FDEs do not have.
std::optional<uint64_t> ReadPointer(DwarfCursor& cursor, uint8_t encoding, uint64_t address, bool is_64) {
  uint64_t value = 0;
  switch (encoding & kSizeMask) {
    case 0x00:  // DW_EH_PE_absptr
      value = is_64 ? cursor.U64() : cursor.U32();
      break;
    case 0x01:  // DW_EH_PE_uleb128
      value = cursor.Uleb();
      break;
    case 0x02:  // DW_EH_PE_udata2
      value = cursor.U16();
      break;
    case 0x03:  // DW_EH_PE_udata4
      value = cursor.U32();
      break;
    case 0x04:  // DW_EH_PE_udata8
    case 0x0c:  // DW_EH_PE_sdata8
      value = cursor.U64();
      break;
    case 0x09:  // DW_EH_PE_sleb128
      value = static_cast<uint64_t>(cursor.Sleb());
      break;
    case 0x0a:  // DW_EH_PE_sdata2
      value = static_cast<uint64_t>(int64_t{static_cast<int16_t>(cursor.U16())});
      break;
    case 0x0b:  // DW_EH_PE_sdata4
      value = static_cast<uint64_t>(int64_t{static_cast<int32_t>(cursor.U32())});
      break;
    default:
      return std::nullopt;
  }
  const uint8_t relative = encoding & kRelativeMask;
  if (cursor.bad() || (relative != kAbsolute && relative != kPcRelative)) return std::nullopt;
  if (relative == kPcRelative) value += address;
  return is_64 ? value : static_cast<uint32_t>(value);
}

// How the FDEs of a CIE encode the addresses of their functions.
std::optional<uint8_t> PointerEncoding(absl::string_view cie, bool is_64) {
  DwarfCursor cursor(cie);
  cursor.Skip(4);  // length
  const uint32_t id = cursor.U32();
  const uint8_t version = cursor.U8();
  const absl::string_view augmentation = cursor.CString();
  if (cursor.bad() || id != 0 || (version != 1 && version != 3)) return std::nullopt;
  if (augmentation.empty()) return kAbsolute;
  if (augmentation[0] != 'z') return std::nullopt;
  cursor.SkipLeb();                                  // code alignment
  cursor.SkipLeb();                                  // data alignment
  version == 1 ? cursor.Skip(1) : cursor.SkipLeb();  // return address register
  cursor.SkipLeb();                                  // length of what follows
  for (const char what : augmentation.substr(1)) {
    uint8_t encoding = 0;
    switch (what) {
      case 'R':
        encoding = cursor.U8();
        return cursor.bad() ? std::nullopt : std::optional(encoding);
      case 'P':  // personality
        encoding = cursor.U8();
        if (!ReadPointer(cursor, encoding & kSizeMask, 0, is_64)) return std::nullopt;
        break;
      case 'L':  // encoding of language specific data
        cursor.Skip(1);
        break;
      case 'S':  // a signal's frame
      case 'B':  // pointer authentication
        break;
      default:
        return std::nullopt;
    }
  }
  return kAbsolute;
}

// The sorted table of .eh_frame_hdr: where functions start, and where their FDEs are.
class SearchTable {
 public:
  struct Entry {
    uint64_t start, fde;  // addresses
  };

  SearchTable(const ElfFile& file, const ElfFile::Section& section)
      : is_64_(file.is_64()), address_(section.address), bytes_(file, section) {
    DwarfCursor cursor(bytes_.At(0, kMaxHeaderBytes));
    const uint8_t version = cursor.U8();
    const uint8_t frame_encoding = cursor.U8(), count_encoding = cursor.U8(), table_encoding = cursor.U8();
    if (version != 1 || table_encoding != kSearchTable) return;
    if (!ReadPointer(cursor, frame_encoding & kSizeMask, 0, is_64_)) return;
    const std::optional<uint64_t> count = ReadPointer(cursor, count_encoding, 0, is_64_);
    if (!count) return;
    first_ = cursor.offset();
    count_ = std::min(*count, (section.size - first_) / kTableEntryBytes);
  }

  // The last entry that starts at or before `address`. Each address must be greater than the one before.
  std::optional<Entry> Find(uint64_t address) {
    if (count_ == 0) return std::nullopt;
    // It is mostly not far: in growing steps, then between the last two.
    uint64_t low = at_, high = at_ + 1;
    for (uint64_t step = 1; high < count_ && Get(high).start <= address; step *= 2) {
      low = high;
      high += step;
    }
    high = std::min(high, count_);
    while (high - low > 1) {
      const uint64_t middle = low + (high - low) / 2;
      (Get(middle).start <= address ? low : high) = middle;
    }
    at_ = low;
    return Get(low);
  }

 private:
  Entry Get(uint64_t index) {
    DwarfCursor cursor(bytes_.At(first_ + index * kTableEntryBytes, kTableEntryBytes));
    const auto next = [&] {
      const uint64_t value = address_ + static_cast<uint64_t>(int64_t{static_cast<int32_t>(cursor.U32())});
      return is_64_ ? value : static_cast<uint32_t>(value);
    };
    const uint64_t start = next();
    return {start, next()};
  }

  const bool is_64_;
  const uint64_t address_;
  SectionBytes bytes_;
  uint64_t first_ = 0, count_ = 0;
  uint64_t at_ = 0;  // where the last search ended
};

class FrameDescriptions {
 public:
  FrameDescriptions(const ElfFile& file, const ElfFile::Section& section)
      : is_64_(file.is_64()), section_(section), fdes_(file, section), cies_(file, section) {}

  // The range of the FDE at `fde`; `end` 0 when it is none that can be read.
  FunctionCache::Found Read(uint64_t fde) {
    const uint64_t at = fde - section_.address;  // At refuses what lies outside
    DwarfCursor cursor(fdes_.At(at, kMaxFdeBytes));
    const uint32_t length = cursor.U32();
    const uint32_t to_cie = cursor.U32();
    // 0 ends the section, all ones begin a 64-bit length; without a way back it is a CIE.
    if (cursor.bad() || length == 0 || length == ~uint32_t{0} || to_cie == 0 || to_cie > at + 4) return {};
    const uint64_t cie = at + 4 - to_cie;
    if (cie != cie_) {
      cie_ = cie;
      encoding_ = PointerEncoding(cies_.At(cie, kMaxCieBytes), is_64_);
    }
    if (!encoding_) return {};
    const auto start = ReadPointer(cursor, *encoding_, fde + cursor.offset(), is_64_);
    const auto size = ReadPointer(cursor, *encoding_ & kSizeMask, 0, is_64_);
    if (!start || !size || *size > ~*start || cursor.offset() > uint64_t{length} + 4) return {};
    return {.start = *start, .end = *start + *size, .name = ""};
  }

 private:
  const bool is_64_;
  const ElfFile::Section& section_;
  SectionBytes fdes_, cies_;
  uint64_t cie_ = ~uint64_t{0};      // the last one read
  std::optional<uint8_t> encoding_;  // of its FDEs
};

}  // namespace

std::vector<FunctionCache::Found> FindEhFrameFunctions(const ElfFile& file,
                                                       absl::Span<const uint64_t> addresses) {
  std::vector<FunctionCache::Found> found(addresses.size());
  const ElfFile::Section* header = file.FindSection(".eh_frame_hdr");
  const ElfFile::Section* frames = file.FindSection(".eh_frame");
  // Separate debug files have both without their bytes.
  if (header == nullptr || header->type == SHT_NOBITS || frames == nullptr || frames->type == SHT_NOBITS) {
    return found;
  }
  SearchTable table(file, *header);
  FrameDescriptions descriptions(file, *frames);
  FunctionCache::Found last;
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (addresses[i] < last.start || addresses[i] >= last.end) {
      const std::optional<SearchTable::Entry> entry = table.Find(addresses[i]);
      if (!entry) continue;
      last = descriptions.Read(entry->fde);
      // A table that does not fit its FDEs is not to be trusted about them.
      if (last.start != entry->start) last = {};
    }
    if (addresses[i] >= last.start && addresses[i] < last.end) found[i] = last;
  }
  return found;
}

}  // namespace xenprof::symbols
