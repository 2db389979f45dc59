// The debug sections of an ELF file, and the values in them that units refer to by offset or index.
#ifndef XENPROF_SYMBOLS_DWARF_SECTIONS_H_
#define XENPROF_SYMBOLS_DWARF_SECTIONS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "xenprof/symbols/elf_file.h"

namespace xenprof::symbols {

// A section of which slices are read as they are needed. Compressed ones are decompressed whole.
class DwarfSection {
 public:
  static absl::StatusOr<DwarfSection> Open(const ElfFile& file, absl::string_view name, uint64_t max_bytes);

  uint64_t size() const { return size_; }
  // [offset, offset + size), in `buffer` or where the section lies in memory. OutOfRange outside of the
  // section.
  absl::StatusOr<absl::string_view> Slice(uint64_t offset, uint64_t size, std::string& buffer) const;

 private:
  std::shared_ptr<const ByteSource> source_;
  uint64_t offset_ = 0, size_ = 0;
  std::string name_;
  std::string bytes_;
  bool in_memory_ = false;
};

struct DwarfSections {
  DwarfSection info, line;  // large: read unit by unit
  // Small, or asked at random.
  std::string abbrev, str, line_str, ranges, rnglists, addr, str_offsets;

  // NotFound without .debug_info. `max_bytes` bounds each section, decompressed.
  static absl::StatusOr<std::unique_ptr<DwarfSections>> Open(const ElfFile& file, uint64_t max_bytes);
};

// The zero-terminated string at `offset`; empty outside.
absl::string_view DwarfStringAt(absl::string_view section, uint64_t offset);

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_DWARF_SECTIONS_H_
