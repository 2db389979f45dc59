#include "xenprof/symbols/elf_names.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "xenprof/symbols/address_matcher.h"
#include "xenprof/symbols/byte_stream.h"
#include "xenprof/symbols/demangle.h"
#include "xenprof/symbols/eh_frame.h"
#include "xenprof/symbols/elf_plt.h"
#include "xenprof/symbols/symbol_text.h"

namespace xenprof::symbols {
namespace {

constexpr size_t kAddressesAtOnce = 1 << 13;

struct NameTable {
  std::shared_ptr<const ElfFile> file;
  const ElfFile::Section* section;
};

const ElfFile::Section* UsableTable(const std::shared_ptr<const ElfFile>& file, uint32_t type) {
  if (file == nullptr) return nullptr;
  const ElfFile::Section* section = file->FindSectionOfType(type);
  return section != nullptr && section->size > 0 ? section : nullptr;
}

std::string RawName(const std::vector<NameTable>& tables, uint64_t ref) {
  const NameTable& table = tables[ref >> 32];
  std::string name = table.file->StringOf(*table.section, static_cast<uint32_t>(ref));
  const size_t version = name.find('@');
  if (version != std::string::npos) name.resize(version);
  return name;
}

// Functions, and labels in code that may be functions written in assembler. `code` says which sections hold
// code.
bool IsCandidate(const ElfFile::Symbol& symbol, const std::vector<bool>& code) {
  if (symbol.section == SHN_UNDEF || symbol.section == SHN_ABS || symbol.section == SHN_COMMON) return false;
  if (symbol.name == 0 || symbol.value == 0) return false;
  if (symbol.type == STT_FUNC || symbol.type == STT_GNU_IFUNC) return true;
  return symbol.type == STT_NOTYPE && symbol.section < code.size() && code[symbol.section];
}

std::vector<bool> CodeSections(const ElfFile& file) {
  std::vector<bool> code(file.sections().size());
  for (size_t i = 0; i < code.size(); ++i) code[i] = (file.sections()[i].flags & SHF_EXECINSTR) != 0;
  return code;
}

// Names `addresses`, the first of which is number `offset` of those asked for.
void Match(const ElfFile& program, const std::vector<NameTable>& tables, absl::Span<const uint64_t> addresses,
           size_t offset, ElfNames* names, std::vector<std::string>* problems) {
  const bool exports_only = tables.size() == 1 && tables[0].section->type == SHT_DYNSYM;
  AddressMatcher matcher(addresses, [&tables](uint64_t ref, uint64_t than) {
    return NameRank(true, false, true, RawName(tables, ref)) <
           NameRank(true, false, true, RawName(tables, than));
  });
  for (size_t i = 0; i < tables.size(); ++i) {
    const std::vector<bool> code = CodeSections(*tables[i].file);
    bool sane = true;
    const absl::Status status =
        tables[i].file->ForEachSymbol(*tables[i].section, [&](const ElfFile::Symbol& symbol) {
          if (!IsCandidate(symbol, code)) return true;
          // With exports alone, what follows one that has no size may be anything. What follows a mark is not
          // called so.
          const uint64_t ref = uint64_t{i} << 32 | symbol.name;
          if (symbol.size == 0 &&
              (exports_only ||
               (symbol.type == STT_NOTYPE && symbol.binding != STB_LOCAL && IsMark(RawName(tables, ref))))) {
            matcher.Add(symbol.value, AddressMatcher::kBoundary, 0);
            return true;
          }
          const bool is_function = symbol.type != STT_NOTYPE;
          const uint32_t rank =
              NameRank(is_function, symbol.binding == STB_WEAK, symbol.binding != STB_LOCAL, "");
          sane = matcher.AddSized(symbol.value, symbol.size, rank, ref);
          return sane;
        });
    if (!status.ok()) problems->push_back(std::string(status.message()));
    if (!sane)
      problems->push_back(absl::StrCat(tables[i].file->name(), ": symbols overlap beyond reason, given up"));
  }

  const auto name_it = [&](size_t i, FunctionCache::Found found) {
    std::vector<FunctionCache::Found>& functions = names->functions;
    if (functions.empty() || functions.back().start != found.start || functions.back().end != found.end ||
        functions.back().name != found.name) {
      functions.push_back(std::move(found));
    }
    names->function_of[offset + i] = static_cast<uint32_t>(functions.size() - 1);
  };
  const std::vector<AddressMatcher::Match> matches = matcher.Finish();
  std::vector<uint64_t> in_stubs;
  std::vector<size_t> in_stubs_index;
  std::string last_name;
  uint64_t last_ref = ~uint64_t{0};
  for (size_t i = 0; i < matches.size(); ++i) {
    const AddressMatcher::Match& match = matches[i];
    const ElfFile::Section* section = program.SectionAt(addresses[i]);
    if (section != nullptr && absl::StartsWith(section->name, ".plt")) {
      in_stubs.push_back(addresses[i]);
      in_stubs_index.push_back(i);
      continue;
    }
    if (!match.found) continue;
    uint64_t end = match.end;
    if (match.slot != AddressMatcher::kNone || end == 0) {
      // No size: it ends with its section at the latest.
      if (section == nullptr || match.start < section->address) continue;
      const uint64_t section_end = section->address + section->size;
      if (end == 0 || end > section_end) end = section_end;
    }
    if (end <= addresses[i] || match.start > addresses[i]) continue;
    if (match.ref != last_ref) {
      last_ref = match.ref;
      last_name = Demangle(RawName(tables, match.ref));
    }
    if (last_name.empty()) continue;
    name_it(i, {.start = match.start, .end = end, .name = last_name});
  }
  const std::vector<FunctionCache::Found> stubs = FindPltStubs(program, in_stubs);
  for (size_t i = 0; i < stubs.size(); ++i) {
    if (stubs[i].end != 0) name_it(in_stubs_index[i], stubs[i]);
  }

  // One FDE covers all stubs of a linkage table: it says nothing about a stub without a name.
  std::vector<uint64_t> nameless;
  std::vector<size_t> nameless_index;
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (names->function_of[offset + i] != ElfNames::kNone ||
        std::binary_search(in_stubs.begin(), in_stubs.end(), addresses[i])) {
      continue;
    }
    nameless.push_back(addresses[i]);
    nameless_index.push_back(i);
  }
  std::vector<FunctionCache::Found> bounds = FindEhFrameFunctions(program, nameless);
  for (size_t i = 0; i < bounds.size(); ++i) {
    // Symbols beside it, which other addresses may ask for another time, keep all that is theirs.
    const AddressMatcher::Match& gap = matches[nameless_index[i]];
    bounds[i].start = std::max(bounds[i].start, gap.start);
    if (gap.end != 0) bounds[i].end = std::min(bounds[i].end, gap.end);
    if (bounds[i].start <= nameless[i] && bounds[i].end > nameless[i]) {
      name_it(nameless_index[i], std::move(bounds[i]));
    }
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ElfFile>> OpenMiniDebugInfo(const ElfFile& program, uint64_t max_bytes) {
  const ElfFile::Section* section = program.FindSection(".gnu_debugdata");
  if (section == nullptr || section->type == SHT_NOBITS) {
    return absl::NotFoundError(absl::StrCat(program.name(), ": no .gnu_debugdata"));
  }
  const std::string name = absl::StrCat(program.name(), ":.gnu_debugdata");
  absl::StatusOr<std::unique_ptr<ByteStream>> stream =
      StreamOfSource(program.source(), section->offset, section->size, max_bytes, name);
  if (!stream.ok()) return stream.status();
  absl::StatusOr<std::string> bytes = ReadAll(**stream);
  if (!bytes.ok()) return bytes.status();
  return ElfFile::Open(MemoryByteSource(*std::move(bytes)), name);
}

ElfNames FindElfNames(const std::shared_ptr<const ElfFile>& program,
                      const std::shared_ptr<const ElfFile>& debug, absl::Span<const uint64_t> addresses,
                      uint64_t max_decompressed_bytes) {
  ElfNames names;
  names.function_of.assign(addresses.size(), ElfNames::kNone);
  std::vector<std::string> problems;

  std::vector<NameTable> tables;
  std::vector<std::string> used;
  if (const auto* section = UsableTable(program, SHT_SYMTAB)) {
    tables.push_back({program, section});
    used.push_back(".symtab");
  } else {
    if (const auto* dynamic = UsableTable(program, SHT_DYNSYM)) {
      tables.push_back({program, dynamic});
      used.push_back(".dynsym");
    }
    if (const auto* separate = UsableTable(debug, SHT_SYMTAB)) {
      tables.push_back({debug, separate});
      used.push_back(absl::StrCat(".symtab of ", debug->name()));
    } else {
      absl::StatusOr<std::shared_ptr<const ElfFile>> mini =
          OpenMiniDebugInfo(*program, max_decompressed_bytes);
      const auto* packed = mini.ok() ? UsableTable(*mini, SHT_SYMTAB) : nullptr;
      if (packed != nullptr) {
        tables.push_back({*std::move(mini), packed});
        used.push_back(".gnu_debugdata");
      } else if (!mini.ok() && !absl::IsNotFound(mini.status())) {
        problems.push_back(std::string(mini.status().message()));
      }
    }
  }
  names.tables = absl::StrJoin(used, " and ");

  // Not all at once: what is remembered of an address until its symbol is found stays in a CPU's cache.
  for (size_t first = 0; first < addresses.size(); first += kAddressesAtOnce) {
    const bool again = first > 0;
    std::vector<std::string> found_wrong;
    Match(*program, tables, addresses.subspan(first, kAddressesAtOnce), first, &names, &found_wrong);
    // Every group reads the same tables.
    if (!again) problems.insert(problems.end(), found_wrong.begin(), found_wrong.end());
  }
  if (tables.empty() && problems.empty())
    problems.push_back(absl::StrCat(program->name(), " has no symbol table"));
  names.problem = absl::StrJoin(problems, "; ");
  return names;
}

}  // namespace xenprof::symbols
