#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "xenprof/chunk/decoder.h"

namespace xenprof::chunk {

absl::Status ChunkDecoder::AddSymbols(const proto::Symbols& symbols) {
  const auto bad = [](auto... parts) {
    return absl::InvalidArgumentError(absl::StrCat("symbols: ", parts...));
  };
  const auto known = [&](uint32_t string) { return string < static_cast<uint32_t>(symbols.strings_size()); };
  // Everything is checked before anything is taken.
  for (const proto::MappingSymbols& m : symbols.mappings()) {
    const std::string of = absl::StrCat("mapping ", m.mapping(), ": ");
    if (mapping_ids_.Find(m.mapping()) == IdMap::kNone && !options_.salvage) return bad(of, "does not exist");
    if (m.function_size_size() != m.function_start_size() ||
        m.function_name_size() != m.function_start_size()) {
      return bad(of, "columns of functions differ in length");
    }
    if (m.line_depth_size() != m.line_address_size()) return bad(of, "columns of lines differ in length");
    uint64_t entries = 0;
    for (const uint32_t depth : m.line_depth()) entries += depth;
    if (entries != static_cast<uint64_t>(m.line_function_size()) ||
        m.line_file_size() != m.line_function_size() || m.line_number_size() != m.line_function_size()) {
      return bad(of, "columns of lines differ in length");
    }
    for (const auto* column : {&m.function_name(), &m.line_function(), &m.line_file()}) {
      for (const uint32_t string : *column) {
        if (!known(string)) return bad(of, "no string ", string);
      }
    }
  }

  names_.emplace_back(symbols.strings().begin(), symbols.strings().end());
  const std::vector<std::string>& names = names_.back();
  has_symbols_ = true;
  symbols_.resize(std::max(symbols_.size(), tables_.mappings.size()));
  for (const proto::MappingSymbols& m : symbols.mappings()) {
    const uint32_t mapping = mapping_ids_.Find(m.mapping());
    if (mapping == IdMap::kNone) continue;  // its block was lost: nothing refers to it
    SymbolTable& table = symbols_[mapping];
    if (!m.source().empty()) table.source = m.source();
    if (!m.problem().empty()) table.problem = m.problem();
    uint64_t start = 0;
    for (int i = 0; i < m.function_start_size(); ++i) {
      start += m.function_start(i);
      table.functions.push_back({names[m.function_name(i)], start, m.function_size(i)});
    }
    uint64_t address = 0;
    int entry = 0;
    for (int i = 0; i < m.line_address_size(); ++i) {
      address += m.line_address(i);
      table.groups.push_back({address, static_cast<uint32_t>(table.lines.size()), m.line_depth(i)});
      for (uint32_t depth = 0; depth < m.line_depth(i); ++depth, ++entry) {
        table.lines.push_back(
            {names[m.line_function(entry)], names[m.line_file(entry)], m.line_number(entry)});
      }
    }
    // A large mapping may come in several payloads, and sums may have wrapped in a hostile one.
    const auto by_start = [](const Function& a, const Function& b) { return a.start < b.start; };
    if (!std::is_sorted(table.functions.begin(), table.functions.end(), by_start)) {
      std::stable_sort(table.functions.begin(), table.functions.end(), by_start);
    }
    const auto by_address = [](const LineGroup& a, const LineGroup& b) { return a.address < b.address; };
    if (!std::is_sorted(table.groups.begin(), table.groups.end(), by_address)) {
      std::stable_sort(table.groups.begin(), table.groups.end(), by_address);
    }
  }
  return absl::OkStatus();
}

const ChunkDecoder::Function* ChunkDecoder::FindFunction(uint32_t mapping, uint64_t address) const {
  const absl::Span<const Function> functions = FunctionsOf(mapping);
  auto after =
      std::upper_bound(functions.begin(), functions.end(), address,
                       [](uint64_t value, const Function& function) { return value < function.start; });
  if (after == functions.begin()) return nullptr;
  const Function& function = *--after;
  return function.size == 0 || address - function.start < function.size ? &function : nullptr;
}

absl::Span<const ChunkDecoder::Line> ChunkDecoder::LinesFor(uint32_t mapping, uint64_t address) const {
  const SymbolTable* table = SymbolsOf(mapping);
  if (table == nullptr) return {};
  auto group = std::lower_bound(table->groups.begin(), table->groups.end(), address,
                                [](const LineGroup& group, uint64_t value) { return group.address < value; });
  if (group == table->groups.end() || group->address != address) return {};
  return absl::MakeConstSpan(table->lines).subspan(group->first, group->count);
}

absl::string_view ChunkDecoder::SymbolSource(uint32_t mapping) const {
  const SymbolTable* table = SymbolsOf(mapping);
  return table == nullptr ? absl::string_view() : table->source;
}

absl::string_view ChunkDecoder::SymbolProblem(uint32_t mapping) const {
  const SymbolTable* table = SymbolsOf(mapping);
  return table == nullptr ? absl::string_view() : table->problem;
}

absl::Span<const ChunkDecoder::Function> ChunkDecoder::FunctionsOf(uint32_t mapping) const {
  const SymbolTable* table = SymbolsOf(mapping);
  return table == nullptr ? absl::Span<const Function>() : absl::MakeConstSpan(table->functions);
}

}  // namespace xenprof::chunk
