// An ELF file nobody vouches for: every offset and size is checked before use.
#ifndef XENPROF_SYMBOLS_ELF_FILE_H_
#define XENPROF_SYMBOLS_ELF_FILE_H_

#include <elf.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "xenprof/symbols/byte_source.h"

namespace xenprof::symbols {

// Little-endian ELF, 64 or 32 bit. Offsets, sizes and flags as in the System V ABI, widened to 64 bit.
class ElfFile {
 public:
  struct Section {
    std::string name;
    uint32_t type = 0;
    uint64_t flags = 0, address = 0, offset = 0, size = 0, entry_size = 0;
    uint32_t link = 0, info = 0;
  };
  struct Segment {
    uint32_t type = 0, flags = 0;
    uint64_t offset = 0, address = 0, file_size = 0, memory_size = 0, alignment = 0;
  };
  struct Symbol {
    uint32_t name = 0;  // offset in the linked string table
    uint8_t type = 0, binding = 0;
    uint16_t section = 0;
    uint64_t value = 0, size = 0;
  };

  // `name` is for messages. InvalidArgument for what is no such ELF file, OutOfRange for headers that point
  // outside.
  static absl::StatusOr<std::shared_ptr<const ElfFile>> Open(std::shared_ptr<const ByteSource> source,
                                                             std::string name);

  const std::string& name() const { return name_; }
  const std::shared_ptr<const ByteSource>& source() const { return source_; }
  const std::string& build_id() const { return build_id_; }  // raw bytes, empty when there is none
  uint16_t type() const { return type_; }
  uint16_t machine() const { return machine_; }
  bool is_64() const { return is_64_; }
  const std::vector<Section>& sections() const { return sections_; }
  const std::vector<Segment>& segments() const { return segments_; }

  const Section* FindSection(absl::string_view name) const;
  const Section* FindSectionOfType(uint32_t type) const;
  // The section in memory that holds `address`, or null.
  const Section* SectionAt(uint64_t address) const;

  // Between offsets in the file, as mappings have them, and addresses, as symbols have them.
  std::optional<uint64_t> AddressOfOffset(uint64_t file_offset) const;
  std::optional<uint64_t> OffsetOfAddress(uint64_t address) const;

  // The bytes of a section, decompressed when it is marked SHF_COMPRESSED or called .zdebug_*.
  absl::StatusOr<std::string> ReadSection(const Section& section, uint64_t max_bytes) const;

  // Calls `visit` for every symbol of a SHT_SYMTAB or SHT_DYNSYM section, without keeping the table. Ends
  // early when `visit` returns false.
  absl::Status ForEachSymbol(const Section& table, const std::function<bool(const Symbol&)>& visit) const;
  // Symbol number `index` of such a section.
  std::optional<Symbol> SymbolAt(const Section& table, uint64_t index) const;

  // A string of the string table that `table` links to.
  std::string StringOf(const Section& table, uint32_t offset) const;

 private:
  ElfFile() = default;
  absl::Status ReadHeaders();
  absl::Status ReadSegments(uint64_t offset, uint32_t count, uint32_t entry_size);
  absl::Status ReadSections(uint64_t offset, uint64_t count, uint32_t entry_size, uint32_t names);
  void FindBuildId();

  std::shared_ptr<const ByteSource> source_;
  std::string name_;
  bool is_64_ = true;
  uint16_t type_ = 0, machine_ = 0;
  std::vector<Section> sections_;
  std::vector<Segment> segments_;
  std::string build_id_;
};

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_ELF_FILE_H_
