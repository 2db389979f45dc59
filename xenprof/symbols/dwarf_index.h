// Inline frames and source lines of every address of one program, sorted and compact: found in microseconds
// where reading DWARF takes seconds. The bytes are the same in memory and on disk.
#ifndef XENPROF_SYMBOLS_DWARF_INDEX_H_
#define XENPROF_SYMBOLS_DWARF_INDEX_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "xenprof/symbols/elf_file.h"
#include "xenprof/symbols/symbolizer.h"

namespace xenprof::symbols {

class DwarfIndex {
 public:
  // One level of an address: the function, and the place in it. Views are valid as long as the index.
  struct Level {
    absl::string_view function;  // as in DWARF or the symbol table, not demangled; empty when not known
    absl::string_view file;      // with its folder; empty when not known
    uint32_t line = 0;           // 0: not known
  };

  // Reads all DWARF of `file`. Memory is that of the result and of the largest unit. NotFound when it has
  // none.
  static absl::StatusOr<std::unique_ptr<DwarfIndex>> Build(const ElfFile& file);

  // Of bytes that were built before: checks every number in them. `build_id` (raw) must be the one they are
  // for.
  static absl::StatusOr<std::unique_ptr<DwarfIndex>> FromBytes(std::string bytes, absl::string_view build_id);
  // The same for a file that an earlier run wrote; mapped into memory. Only taken when it belongs to this
  // user and nobody else can write it, so that nobody can cut it while it is mapped.
  static absl::StatusOr<std::unique_ptr<DwarfIndex>> FromFile(const std::string& path,
                                                              absl::string_view build_id);
  // Written beside and renamed, mode 0600.
  absl::Status WriteTo(const std::string& path) const;

  ~DwarfIndex();
  DwarfIndex(const DwarfIndex&) = delete;
  DwarfIndex& operator=(const DwarfIndex&) = delete;

  // Where the last search ended: the next one starts there, and is short when its address is a little higher.
  struct Position {
    uint32_t offset = 0;
    size_t function = 0, line = 0;
  };

  // Innermost first, empty for an address that is in no function and has no line.
  void Find(uint64_t address, Position* position, std::vector<Level>* levels) const;

  // For `addresses` (ascending): those about which something is known, names demangled.
  std::vector<Lines> Find(absl::Span<const uint64_t> addresses) const;

  absl::string_view bytes() const { return bytes_; }

 private:
  friend class DwarfIndexWriter;
  DwarfIndex() = default;
  absl::Status Check(absl::string_view build_id);
  absl::string_view Text(uint32_t offset) const;

  struct Node {
    uint32_t name, parent, call_file,
        call_line;  // parent: node + 1 of the caller, 0 for a function of its own
  };
  struct Line {
    uint32_t file, line;  // file 0: none
  };

  std::string owned_;
  void* mapped_ = nullptr;
  size_t mapped_size_ = 0;
  absl::string_view bytes_;

  uint64_t base_ = 0;
  // Starts are relative to base_, ascending; a range ends where the next begins.
  absl::Span<const uint32_t> function_starts_;
  absl::Span<const uint32_t> function_nodes_;  // node + 1, 0: no function here
  absl::Span<const uint32_t> line_starts_;
  absl::Span<const Line> lines_;
  absl::Span<const Node> nodes_;
  absl::Span<const uint32_t> files_;  // offsets of names; [0] is ""
  absl::string_view text_;            // zero-terminated strings
};

// `FOLDER/<build id in hex>.xdi`
std::string DwarfIndexPath(absl::string_view folder, absl::string_view build_id);

// The index of `file`, from `folder` when it is there and sound, else built and, when `folder` is not empty,
// kept there (best effort). `from_folder` tells which.
absl::StatusOr<std::unique_ptr<DwarfIndex>> OpenDwarfIndex(const ElfFile& file, const std::string& folder,
                                                           bool* from_folder);

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_DWARF_INDEX_H_
