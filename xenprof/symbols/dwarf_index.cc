#include "xenprof/symbols/dwarf_index.h"

#include <sys/mman.h>
#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "xenprof/symbols/demangle.h"
#include "xenprof/symbols/dwarf_functions.h"
#include "xenprof/symbols/dwarf_index_format.h"
#include "xenprof/symbols/dwarf_index_writer.h"
#include "xenprof/symbols/dwarf_lines.h"

namespace xenprof::symbols {
namespace {

constexpr uint64_t kMaxSectionBytes = uint64_t{1} << 30;
constexpr int kMaxLevels = 256;

// The last place in `starts` that is not after `offset`, searched from `from` on, where places before it are
// known not to be after it either. `starts.size()` when even the first is after it.
size_t LastNotAfter(absl::Span<const uint32_t> starts, size_t from, uint32_t offset) {
  if (starts.empty() || starts[from] > offset) return starts.size();
  size_t low = from, step = 1;
  while (low + step < starts.size() && starts[low + step] <= offset) {
    low += step;
    step *= 2;
  }
  const size_t high = std::min(low + step, starts.size());
  return std::upper_bound(starts.begin() + low, starts.begin() + high, offset) - starts.begin() - 1;
}

template <typename T>
absl::Span<const T> Table(absl::string_view bytes, uint64_t* at, uint64_t count) {
  const absl::Span<const T> table(reinterpret_cast<const T*>(bytes.data() + *at), count);
  *at = DwarfIndexAlign(*at + count * sizeof(T));
  return table;
}

}  // namespace

DwarfIndex::~DwarfIndex() {
  if (mapped_ != nullptr) munmap(mapped_, mapped_size_);
}

absl::StatusOr<std::unique_ptr<DwarfIndex>> DwarfIndex::Build(const ElfFile& file) {
  absl::StatusOr<std::unique_ptr<DwarfSections>> sections = DwarfSections::Open(file, kMaxSectionBytes);
  if (!sections.ok()) return sections.status();
  absl::StatusOr<DwarfIndexWriter> writer = DwarfIndexWriter::For(file);
  if (!writer.ok()) return writer.status();

  DwarfFunctionReader reader(**sections);
  const absl::Status units = reader.ReadUnits();
  if (!units.ok() && reader.unit_count() == 0) return units;
  for (size_t i = 0; i < reader.unit_count(); ++i) {
    const absl::StatusOr<const DwarfUnit*> unit = reader.Load(i);
    if (!unit.ok()) continue;  // a damaged unit costs only itself
    DwarfLineTable lines;
    std::vector<uint32_t> file_ids;  // by number in `lines`; 0: not asked for yet, or not known
    const auto id_of = [&](uint32_t number) -> uint32_t {
      if (number > lines.files.size()) return 0;
      if (file_ids.size() <= number) file_ids.resize(lines.files.size() + 1, 0);
      if (file_ids[number] == 0)
        file_ids[number] = writer->FileId(lines.FileName(number, (*unit)->comp_dir()));
      return file_ids[number];
    };
    if ((*unit)->has_lines()) {
      (void)ReadDwarfLines(**sections, (*unit)->lines_offset(), &lines, [&](const DwarfLineSequence& rows) {
        uint32_t last = ~uint32_t{0};
        for (const DwarfLineRow& row : rows) {
          if (row.file != last) id_of(last = row.file);
        }
        writer->AddLines(rows, file_ids);
      });
    }
    reader.ForEachFunction([&](DwarfFunction& function, int64_t caller) {
      return writer->AddFunction(function, caller, function.inlined ? id_of(function.call_file) : 0);
    });
  }
  writer->AddSymbols(file);
  return FromBytes(writer->Finish(file.build_id()), file.build_id());
}

absl::StatusOr<std::unique_ptr<DwarfIndex>> DwarfIndex::FromBytes(std::string bytes,
                                                                  absl::string_view build_id) {
  std::unique_ptr<DwarfIndex> index(new DwarfIndex);
  index->owned_ = std::move(bytes);
  index->bytes_ = index->owned_;
  const absl::Status status = index->Check(build_id);
  if (!status.ok()) return status;
  return index;
}

absl::Status DwarfIndex::Check(absl::string_view build_id) {
  DwarfIndexHeader header;
  if (bytes_.size() < sizeof(header)) return absl::DataLossError("index: cut off");
  std::memcpy(&header, bytes_.data(), sizeof(header));
  if (std::memcmp(header.magic, kDwarfIndexMagic, sizeof(header.magic)) != 0) {
    return absl::DataLossError("index: not an index");
  }
  if (header.version != kDwarfIndexVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("index: version ", header.version, ", not ", kDwarfIndexVersion));
  }
  constexpr size_t kCovered = offsetof(DwarfIndexHeader, total_bytes);
  if (header.total_bytes != bytes_.size() ||
      header.crc32 != crc32_z(crc32(0, nullptr, 0), reinterpret_cast<const Bytef*>(bytes_.data()) + kCovered,
                              bytes_.size() - kCovered)) {
    return absl::DataLossError("index: checksum does not match");
  }
  if (header.build_id_bytes > kDwarfIndexMaxBuildIdBytes ||
      absl::string_view(reinterpret_cast<const char*>(header.build_id), header.build_id_bytes) !=
          build_id.substr(0, kDwarfIndexMaxBuildIdBytes)) {
    return absl::FailedPreconditionError("index: of another build");
  }
  // A checksum proves no good will: everything below is checked as well.
  uint64_t size = sizeof(header);
  for (const auto& [count, bytes] : {std::pair<uint64_t, uint64_t>{header.function_count, 4},
                                     {header.function_count, 4},
                                     {header.line_count, 4},
                                     {header.line_count, sizeof(Line)},
                                     {header.node_count, sizeof(Node)},
                                     {header.file_count, 4},
                                     {header.text_bytes, 1}}) {
    size = DwarfIndexAlign(size + count * bytes);
  }
  if (size != bytes_.size() || header.text_bytes == 0 || header.file_count == 0) {
    return absl::DataLossError("index: its tables do not fit its size");
  }
  base_ = header.base;
  uint64_t at = sizeof(header);
  function_starts_ = Table<uint32_t>(bytes_, &at, header.function_count);
  function_nodes_ = Table<uint32_t>(bytes_, &at, header.function_count);
  line_starts_ = Table<uint32_t>(bytes_, &at, header.line_count);
  lines_ = Table<Line>(bytes_, &at, header.line_count);
  nodes_ = Table<Node>(bytes_, &at, header.node_count);
  files_ = Table<uint32_t>(bytes_, &at, header.file_count);
  text_ = bytes_.substr(at, header.text_bytes);

  bool good = text_.back() == '\0';
  good &= std::is_sorted(function_starts_.begin(), function_starts_.end());
  good &= std::is_sorted(line_starts_.begin(), line_starts_.end());
  for (uint32_t node : function_nodes_) good &= node <= nodes_.size();
  for (const Line& line : lines_) good &= line.file < files_.size();
  for (uint32_t file : files_) good &= file < text_.size();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    // A caller comes before what it calls, so the way up ends.
    good &= nodes_[i].name < text_.size() && nodes_[i].parent <= i && nodes_[i].call_file < files_.size();
  }
  return good ? absl::OkStatus() : absl::DataLossError("index: numbers out of range");
}

absl::string_view DwarfIndex::Text(uint32_t offset) const { return text_.data() + offset; }

void DwarfIndex::Find(uint64_t address, Position* from, std::vector<Level>* levels) const {
  levels->clear();
  if (address < base_ || address - base_ > 0xffffffff) return;
  const uint32_t offset = static_cast<uint32_t>(address - base_);
  if (offset < from->offset) *from = {};
  from->offset = offset;
  const size_t function = LastNotAfter(function_starts_, from->function, offset);
  const size_t line = LastNotAfter(line_starts_, from->line, offset);
  uint32_t node = 0;
  Line place{0, 0};
  if (function < function_starts_.size()) {
    from->function = function;
    node = function_nodes_[function];
  }
  if (line < line_starts_.size()) {
    from->line = line;
    place = lines_[line];
  }
  if (node == 0 && place.file == 0 && place.line == 0) return;
  // A function out of the symbol table knows its source file, if no line.
  if (place.file == 0 && place.line == 0 && nodes_[node - 1].parent == 0)
    place.file = nodes_[node - 1].call_file;
  for (int i = 0; i < kMaxLevels; ++i) {
    levels->push_back({node == 0 ? absl::string_view() : Text(nodes_[node - 1].name),
                       Text(files_[place.file]), place.line});
    if (node == 0 || nodes_[node - 1].parent == 0) break;
    place = {nodes_[node - 1].call_file, nodes_[node - 1].call_line};
    node = nodes_[node - 1].parent;
  }
}

std::vector<Lines> DwarfIndex::Find(absl::Span<const uint64_t> addresses) const {
  std::vector<Lines> found;
  std::vector<Level> levels;
  Position at;
  for (uint64_t address : addresses) {
    Find(address, &at, &levels);
    if (levels.empty()) continue;
    Lines& lines = found.emplace_back();
    lines.address = address;
    lines.entries.reserve(levels.size());
    for (const Level& level : levels) {
      const bool mangled = absl::StartsWith(level.function, "_Z") || absl::StartsWith(level.function, "_R");
      lines.entries.push_back({mangled ? Demangle(level.function) : std::string(level.function),
                               std::string(level.file), level.line});
    }
  }
  return found;
}

}  // namespace xenprof::symbols
