// Puts an index together out of functions, lines and symbols.
#ifndef XENPROF_SYMBOLS_DWARF_INDEX_WRITER_H_
#define XENPROF_SYMBOLS_DWARF_INDEX_WRITER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "xenprof/symbols/dwarf_functions.h"
#include "xenprof/symbols/dwarf_lines.h"
#include "xenprof/symbols/elf_file.h"

namespace xenprof::symbols {

class DwarfIndexWriter {
 public:
  // InvalidArgument when `file` has no code, or code further apart than 4 GiB.
  static absl::StatusOr<DwarfIndexWriter> For(const ElfFile& file);

  // Adds a function; `caller` is the id of what it was inlined into, or -1. `call_file` is the id of a file.
  // Returns its id, or -1 when none of its code is in the file.
  int64_t AddFunction(const DwarfFunction& function, int64_t caller, uint32_t call_file);
  uint32_t FileId(absl::string_view name);
  // One sequence of a line program; `file_ids` translates its file numbers (0: not known).
  void AddLines(const DwarfLineSequence& rows, const std::vector<uint32_t>& file_ids);
  // The symbol table: better names for functions with plain ones, and names for code that no function holds:
  // assembler. As binutils choose: the last symbol at or before an address.
  void AddSymbols(const ElfFile& file);

  // The bytes of the index; ends the writer's life.
  std::string Finish(absl::string_view build_id);

 private:
  struct Range {
    uint32_t start, end, node;  // relative to base_; node + 1
  };
  struct Node {
    uint32_t name, parent, call_file, call_line;
  };
  struct Line {
    uint32_t file, line;
  };
  struct Sequence {
    uint32_t start, end;
    size_t first, count;  // in rows_
  };
  struct Row {
    uint32_t start;
    Line line;
  };

  bool IsCode(uint64_t start, uint64_t end) const;
  uint32_t TextId(absl::string_view text);
  void FlattenFunctions(std::vector<uint32_t>* starts, std::vector<uint32_t>* nodes) const;
  void FillGaps(std::vector<uint32_t>* starts, std::vector<uint32_t>* nodes) const;
  void FlattenLines(std::vector<uint32_t>* starts, std::vector<Line>* lines);

  uint64_t base_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> code_;  // of the sections with code, ascending
  std::vector<Range> ranges_;
  std::vector<Range> symbols_;  // ascending, not overlapping
  std::vector<Node> nodes_;
  absl::flat_hash_map<uint32_t, uint32_t>
      plain_;  // start to node, of functions whose symbol has the better name
  std::vector<Row> rows_;
  std::vector<Sequence> sequences_;
  std::vector<uint32_t> files_;
  std::string text_;
  absl::flat_hash_map<std::string, uint32_t> text_ids_, file_ids_;
};

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_DWARF_INDEX_WRITER_H_
