#include "xenprof/symbols/dwarf_index_writer.h"

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "xenprof/symbols/dwarf_index_format.h"

namespace xenprof::symbols {
namespace {

// Inlining is a few dozen levels deep at most; damaged DWARF may put any number of ranges at one address.
constexpr size_t kMaxOpenRanges = 512;

template <typename T>
void AppendTable(std::string* bytes, const std::vector<T>& table) {
  bytes->append(reinterpret_cast<const char*>(table.data()), table.size() * sizeof(T));
  bytes->resize(DwarfIndexAlign(bytes->size()));
}

}  // namespace

absl::StatusOr<DwarfIndexWriter> DwarfIndexWriter::For(const ElfFile& file) {
  DwarfIndexWriter writer;
  for (const ElfFile::Section& section : file.sections()) {
    if ((section.flags & SHF_ALLOC) == 0 || (section.flags & SHF_EXECINSTR) == 0 || section.size == 0)
      continue;
    if (section.size > std::numeric_limits<uint64_t>::max() - section.address) continue;
    writer.code_.emplace_back(section.address, section.address + section.size);
  }
  if (writer.code_.empty())
    return absl::InvalidArgumentError(absl::StrCat(file.name(), ": no sections with code"));
  std::sort(writer.code_.begin(), writer.code_.end());
  writer.base_ = writer.code_.front().first;
  uint64_t end = 0;
  for (const auto& range : writer.code_) end = std::max(end, range.second);
  if (end - writer.base_ >= std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(file.name(), ": code is spread over more than 4 GiB"));
  }
  writer.text_.push_back('\0');
  writer.text_ids_[""] = 0;
  writer.files_.push_back(0);
  writer.file_ids_[""] = 0;
  return writer;
}

bool DwarfIndexWriter::IsCode(uint64_t start, uint64_t end) const {
  auto after = std::upper_bound(code_.begin(), code_.end(), start,
                                [](uint64_t address, const auto& range) { return address < range.first; });
  return after != code_.begin() && end <= (after - 1)->second;
}

uint32_t DwarfIndexWriter::TextId(absl::string_view text) {
  text = text.substr(0, text.find('\0'));
  const auto known = text_ids_.find(text);
  if (known != text_ids_.end()) return known->second;
  if (text_.size() + text.size() + 1 > std::numeric_limits<uint32_t>::max()) return 0;
  const uint32_t id = static_cast<uint32_t>(text_.size());
  text_.append(text.data(), text.size());
  text_.push_back('\0');
  text_ids_.emplace(text, id);
  return id;
}

uint32_t DwarfIndexWriter::FileId(absl::string_view name) {
  const auto known = file_ids_.find(name);
  if (known != file_ids_.end()) return known->second;
  const uint32_t id = static_cast<uint32_t>(files_.size());
  files_.push_back(TextId(name));
  file_ids_.emplace(name, id);
  return id;
}

int64_t DwarfIndexWriter::AddFunction(const DwarfFunction& function, int64_t caller, uint32_t call_file) {
  const size_t before = ranges_.size();
  const uint32_t id = static_cast<uint32_t>(nodes_.size());
  for (const auto& [start, end] : function.ranges) {
    // Functions the linker threw away are at address 0 or nowhere.
    if (!IsCode(start, end)) continue;
    ranges_.push_back({static_cast<uint32_t>(start - base_), static_cast<uint32_t>(end - base_), id + 1});
  }
  if (ranges_.size() == before) return -1;
  if (function.plain && !function.inlined) plain_.emplace(ranges_[before].start, id);
  nodes_.push_back({.name = TextId(function.name),
                    .parent = static_cast<uint32_t>(caller + 1),
                    .call_file = function.inlined ? call_file : 0,
                    .call_line = function.inlined ? function.call_line : 0});
  return id;
}

void DwarfIndexWriter::AddLines(const DwarfLineSequence& rows, const std::vector<uint32_t>& file_ids) {
  const uint64_t start = rows.front().address, end = rows.back().address;
  if (start >= end || !IsCode(start, end)) return;
  const size_t first = rows_.size();
  for (size_t i = 0; i + 1 < rows.size(); ++i) {
    const Line line{rows[i].file < file_ids.size() ? file_ids[rows[i].file] : 0, rows[i].line};
    if (rows_.size() > first && rows_.back().line.file == line.file && rows_.back().line.line == line.line)
      continue;
    rows_.push_back({static_cast<uint32_t>(rows[i].address - base_), line});
  }
  sequences_.push_back({static_cast<uint32_t>(start - base_), static_cast<uint32_t>(end - base_), first,
                        rows_.size() - first});
}

void DwarfIndexWriter::AddSymbols(const ElfFile& file) {
  const ElfFile::Section* table = file.FindSectionOfType(SHT_SYMTAB);
  if (table == nullptr) return;
  struct Candidate {
    uint64_t start, size, section_end;
    bool is_function;
    uint32_t name;
    uint32_t source;  // name of the source file's symbol, or 0
  };
  std::vector<Candidate> candidates;
  // Symbols of source files come before the local ones they hold; globals follow at the end, of no file any
  // more.
  uint32_t source = 0;
  bool source_is_late = false, seen_symbol = false;
  (void)file.ForEachSymbol(*table, [&](const ElfFile::Symbol& symbol) {
    if (symbol.type == STT_FILE) {
      source = symbol.name;
      source_is_late = seen_symbol;
      return true;
    }
    seen_symbol = true;
    if (symbol.section == SHN_UNDEF || symbol.section >= file.sections().size()) return true;
    if (symbol.type != STT_FUNC && symbol.type != STT_NOTYPE && symbol.type != STT_GNU_IFUNC) return true;
    const ElfFile::Section& section = file.sections()[symbol.section];
    if ((section.flags & SHF_EXECINSTR) == 0 || !IsCode(symbol.value, symbol.value + 1)) return true;
    if (symbol.value - section.address >= section.size) return true;
    candidates.push_back({symbol.value, std::max<uint64_t>(symbol.size, 1), section.address + section.size,
                          symbol.type != STT_NOTYPE, symbol.name,
                          symbol.binding == STB_LOCAL || !source_is_late ? source : 0});
    return true;
  });
  // Of several at one address the first function, then the smallest, then the first in the table.
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.start != b.start) return a.start < b.start;
    if (a.is_function != b.is_function) return a.is_function;
    return a.size < b.size;
  });
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i > 0 && candidates[i].start == candidates[i - 1].start) continue;
    uint64_t end = candidates[i].section_end;
    for (size_t next = i + 1; next < candidates.size(); ++next) {
      if (candidates[next].start == candidates[i].start) continue;
      end = std::min(end, candidates[next].start);
      break;
    }
    const uint32_t start = static_cast<uint32_t>(candidates[i].start - base_);
    const auto plain = plain_.find(start);
    if (plain != plain_.end()) nodes_[plain->second].name = TextId(file.StringOf(*table, candidates[i].name));
    const uint32_t source_file =
        candidates[i].source == 0 ? 0 : FileId(file.StringOf(*table, candidates[i].source));
    nodes_.push_back({TextId(file.StringOf(*table, candidates[i].name)), 0, source_file, 0});
    symbols_.push_back({static_cast<uint32_t>(candidates[i].start - base_),
                        static_cast<uint32_t>(end - base_), static_cast<uint32_t>(nodes_.size())});
  }
}

// Of several ranges that hold an address the smallest is the innermost; of equal ones, the one that came
// last.
void DwarfIndexWriter::FlattenFunctions(std::vector<uint32_t>* starts, std::vector<uint32_t>* nodes) const {
  std::vector<Range> ranges = ranges_;
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return a.start != b.start ? a.start < b.start : a.node < b.node;
  });
  std::vector<Range> open;
  const auto emit = [&](uint32_t start) {
    const Range* best = nullptr;
    for (const Range& range : open) {
      if (best == nullptr || range.end - range.start < best->end - best->start ||
          (range.end - range.start == best->end - best->start && range.node > best->node)) {
        best = &range;
      }
    }
    const uint32_t node = best == nullptr ? 0 : best->node;
    if (!starts->empty() && starts->back() == start) {
      nodes->back() = node;
    } else if (starts->empty() ? node != 0 : nodes->back() != node) {
      starts->push_back(start);
      nodes->push_back(node);
    }
  };
  // Closes what ends at or before `until`, in order.
  const auto close = [&](uint32_t until) {
    while (!open.empty()) {
      uint32_t first_end = open[0].end;
      for (const Range& range : open) first_end = std::min(first_end, range.end);
      if (first_end > until) break;
      std::erase_if(open, [first_end](const Range& range) { return range.end == first_end; });
      emit(first_end);
    }
  };
  for (const Range& range : ranges) {
    close(range.start);
    if (open.size() >= kMaxOpenRanges) continue;
    open.push_back(range);
    emit(range.start);
  }
  close(std::numeric_limits<uint32_t>::max());
}

void DwarfIndexWriter::FillGaps(std::vector<uint32_t>* starts, std::vector<uint32_t>* nodes) const {
  std::vector<uint32_t> all_starts, all_nodes;
  const auto emit = [&](uint32_t start, uint32_t node) {
    if (!all_starts.empty() && all_starts.back() == start) {
      all_nodes.back() = node;
    } else if (all_nodes.empty() || all_nodes.back() != node) {
      all_starts.push_back(start);
      all_nodes.push_back(node);
    }
  };
  size_t symbol = 0;
  const auto fill = [&](uint32_t start, uint64_t end) {
    emit(start, 0);
    while (symbol < symbols_.size() && symbols_[symbol].end <= start) ++symbol;
    for (size_t i = symbol; i < symbols_.size() && symbols_[i].start < end; ++i) {
      emit(std::max(start, symbols_[i].start), symbols_[i].node);
      if (symbols_[i].end < end) emit(symbols_[i].end, 0);
    }
  };
  if (starts->empty() || starts->front() > 0) fill(0, starts->empty() ? ~uint64_t{0} : starts->front());
  for (size_t i = 0; i < starts->size(); ++i) {
    if ((*nodes)[i] != 0) {
      emit((*starts)[i], (*nodes)[i]);
    } else {
      fill((*starts)[i], i + 1 < starts->size() ? (*starts)[i + 1] : ~uint64_t{0});
    }
  }
  *starts = std::move(all_starts);
  *nodes = std::move(all_nodes);
}

void DwarfIndexWriter::FlattenLines(std::vector<uint32_t>* starts, std::vector<Line>* lines) {
  std::sort(sequences_.begin(), sequences_.end(), [](const Sequence& a, const Sequence& b) {
    return a.start != b.start ? a.start < b.start : a.first < b.first;
  });
  uint32_t done = 0;
  for (const Sequence& sequence : sequences_) {
    if (sequence.end <= done) continue;
    for (size_t i = 0; i < sequence.count; ++i) {
      const Row& row = rows_[sequence.first + i];
      const uint32_t next = i + 1 < sequence.count ? rows_[sequence.first + i + 1].start : sequence.end;
      if (next <= done) continue;
      const uint32_t start = std::max(row.start, done);
      if (!starts->empty() && starts->back() == start) {
        lines->back() = row.line;  // the end of the sequence before
      } else {
        starts->push_back(start);
        lines->push_back(row.line);
      }
    }
    starts->push_back(sequence.end);
    lines->push_back({0, 0});
    done = sequence.end;
  }
}

std::string DwarfIndexWriter::Finish(absl::string_view build_id) {
  std::vector<uint32_t> function_starts, function_nodes, line_starts;
  std::vector<Line> lines;
  FlattenFunctions(&function_starts, &function_nodes);
  FillGaps(&function_starts, &function_nodes);
  FlattenLines(&line_starts, &lines);

  DwarfIndexHeader header = {};
  std::memcpy(header.magic, kDwarfIndexMagic, sizeof(header.magic));
  header.version = kDwarfIndexVersion;
  header.base = base_;
  build_id = build_id.substr(0, kDwarfIndexMaxBuildIdBytes);
  header.build_id_bytes = static_cast<uint32_t>(build_id.size());
  std::memcpy(header.build_id, build_id.data(), build_id.size());
  header.function_count = static_cast<uint32_t>(function_starts.size());
  header.line_count = static_cast<uint32_t>(line_starts.size());
  header.node_count = static_cast<uint32_t>(nodes_.size());
  header.file_count = static_cast<uint32_t>(files_.size());
  header.text_bytes = static_cast<uint32_t>(text_.size());

  std::string bytes;
  bytes.reserve(sizeof(header) + function_starts.size() * 8 + line_starts.size() * 12 +
                nodes_.size() * sizeof(Node) + files_.size() * 4 + text_.size() + 64);
  bytes.resize(sizeof(header));
  AppendTable(&bytes, function_starts);
  AppendTable(&bytes, function_nodes);
  AppendTable(&bytes, line_starts);
  AppendTable(&bytes, lines);
  AppendTable(&bytes, nodes_);
  AppendTable(&bytes, files_);
  bytes += text_;
  bytes.resize(DwarfIndexAlign(bytes.size()));

  header.total_bytes = bytes.size();
  std::memcpy(bytes.data(), &header, sizeof(header));
  constexpr size_t kCovered = offsetof(DwarfIndexHeader, total_bytes);
  header.crc32 = static_cast<uint32_t>(crc32_z(crc32(0, nullptr, 0),
                                               reinterpret_cast<const Bytef*>(bytes.data()) + kCovered,
                                               bytes.size() - kCovered));
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

}  // namespace xenprof::symbols
