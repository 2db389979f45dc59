// Line number programs of DWARF 2 to 5 (DWARF 5 standard, section 6.2).
#ifndef XENPROF_SYMBOLS_DWARF_LINES_H_
#define XENPROF_SYMBOLS_DWARF_LINES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "xenprof/symbols/dwarf_sections.h"

namespace xenprof::symbols {

struct DwarfLineRow {
  uint64_t address = 0;
  uint32_t file = 0;  // as DWARF numbers them in this table
  uint32_t line = 0;
};

struct DwarfLineTable {
  struct File {
    absl::string_view name;
    uint64_t folder = 0;
  };
  uint16_t version = 0;
  std::vector<absl::string_view> folders;
  std::vector<File> files;  // numbered from 0 in version 5, else from 1
  std::string buffer;       // what the views above may point into

  // Full name of file number `index`: its folder, below `compilation_folder` when that is relative. Empty
  // when the table has no such file.
  std::string FileName(uint32_t index, absl::string_view compilation_folder) const;
};

// One run of rows with ascending addresses; the last row's address ends it.
using DwarfLineSequence = std::vector<DwarfLineRow>;

// Reads the table at `offset` of .debug_line. `take` gets each sequence; of several rows with one address it
// has the last. On an error what was read until then has been given out.
absl::Status ReadDwarfLines(const DwarfSections& sections, uint64_t offset, DwarfLineTable* table,
                            const std::function<void(const DwarfLineSequence&)>& take);

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_DWARF_LINES_H_
