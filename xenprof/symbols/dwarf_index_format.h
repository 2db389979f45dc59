// The bytes of an index, in memory and on disk (little-endian, made and read on the same machine).
#ifndef XENPROF_SYMBOLS_DWARF_INDEX_FORMAT_H_
#define XENPROF_SYMBOLS_DWARF_INDEX_FORMAT_H_

#include <cstdint>

namespace xenprof::symbols {

// Raised whenever the layout, or what is put into it, changes: older files are then built anew.
inline constexpr uint32_t kDwarfIndexVersion = 1;
inline constexpr char kDwarfIndexMagic[8] = {'x', 'e', 'n', 'p', 'X', 'D', 'I', '\n'};
inline constexpr uint32_t kDwarfIndexMaxBuildIdBytes = 64;

struct DwarfIndexHeader {
  char magic[8];
  uint32_t version;
  uint32_t crc32;  // of everything after this field (zlib's CRC-32)
  uint64_t total_bytes;
  uint64_t base;  // address that all starts are relative to
  uint32_t build_id_bytes;
  uint32_t function_count;  // tables follow in this order, each aligned to 8 bytes:
  uint32_t line_count;  //   function starts, function nodes (u32 each), line starts (u32), lines (2 x u32),
  uint32_t node_count;  //   nodes (4 x u32),
  uint32_t file_count;  //   files (u32 offsets of names),
  uint32_t text_bytes;  //   text (zero-terminated strings)
  unsigned char build_id[kDwarfIndexMaxBuildIdBytes];
};
static_assert(sizeof(DwarfIndexHeader) == 120);

inline constexpr uint64_t DwarfIndexAlign(uint64_t size) { return (size + 7) & ~uint64_t{7}; }

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_DWARF_INDEX_FORMAT_H_
