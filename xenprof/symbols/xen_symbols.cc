#include "xenprof/symbols/xen_symbols.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "xenprof/base/types.h"
#include "xenprof/symbols/address_matcher.h"
#include "xenprof/symbols/byte_stream.h"
#include "xenprof/symbols/elf_names.h"
#include "xenprof/symbols/problems.h"
#include "xenprof/symbols/symbol_text.h"

namespace xenprof::symbols {
namespace {

constexpr uint64_t kMaxTextBytes = 64 << 20;
constexpr size_t kMaxSlot = AddressMatcher::kNone;

// Functions only an idle CPU is in (xen/arch/x86/domain.c, acpi/cpu_idle.c, cpu/mwait-idle.c,
// acpi/cpuidle_menu.c, common/rcupdate.c, common/sched/core.c; Xen 4.13 to 4.20).
constexpr absl::string_view kIdleFunctions[] = {
    "idle_loop",           "guest_idle_loop",    "default_idle",          "startup_cpu_idle_loop",
    "acpi_processor_idle", "acpi_idle_do_entry", "acpi_dead_idle",        "default_dead_idle",
    "play_dead",           "mwait_idle",         "mwait_idle_with_hints", "sched_guest_idle",
    "menu_select",         "trace_exit_reason",  "menu_reflect",          "update_idle_stats",
    "update_last_cx_stat", "rcu_idle_enter",     "rcu_idle_exit",         "sched_tick_suspend",
    "sched_tick_resume",
};

// Compilers add ".isra.0" and the like; what was split off as ".cold" is idle too.
bool IsIdleFunction(absl::string_view name) {
  name = name.substr(0, name.find('.'));
  return std::find(std::begin(kIdleFunctions), std::end(kIdleFunctions), name) != std::end(kIdleFunctions);
}

// Adds the symbols of a text to a matcher. `names` by slot. Returns the number of functions.
uint64_t MatchText(LineReader& reader, AddressMatcher& matcher, std::vector<std::string>& names) {
  absl::string_view line;
  SymbolLine symbol;
  uint64_t functions = 0;
  while (reader.Next(&line)) {
    if (!ParseSymbolLine(line, &symbol) || !IsHypervisorAddress(symbol.address)) continue;
    const uint32_t rank = SymbolLineRank(symbol);
    if (rank != AddressMatcher::kBoundary) ++functions;
    const size_t slot = matcher.Add(symbol.address, rank, 0);
    if (slot != kMaxSlot) names[slot] = std::string(symbol.name);
  }
  return functions;
}

}  // namespace

std::string XenSymbols::ForEachFunction(const Source& source,
                                        const std::function<void(uint64_t, absl::string_view)>& visit) const {
  if (source.kind == XenSymbolSource::kElf) {
    const ElfFile::Section* table = source.elf->FindSectionOfType(SHT_SYMTAB);
    if (table == nullptr) return absl::StrCat(source.path, " has no symbol table");
    const absl::Status status = source.elf->ForEachSymbol(*table, [&](const ElfFile::Symbol& symbol) {
      if (!IsHypervisorAddress(symbol.value)) return true;
      const bool code = symbol.section < source.elf->sections().size() &&
                        (source.elf->sections()[symbol.section].flags & SHF_EXECINSTR) != 0;
      if (symbol.type == STT_FUNC || (symbol.type == STT_NOTYPE && code)) {
        visit(symbol.value, source.elf->StringOf(*table, symbol.name));
      }
      return true;
    });
    return status.ok() ? "" : std::string(status.message());
  }
  absl::StatusOr<std::unique_ptr<ByteStream>> stream = StreamOfFile(source.path, kMaxTextBytes);
  if (!stream.ok()) return std::string(stream.status().message());
  LineReader reader(stream->get());
  absl::string_view line;
  SymbolLine symbol;
  while (reader.Next(&line)) {
    if (!ParseSymbolLine(line, &symbol) || !IsHypervisorAddress(symbol.address)) continue;
    if (SymbolLineRank(symbol) != AddressMatcher::kBoundary) visit(symbol.address, symbol.name);
  }
  return reader.status().ok() ? "" : std::string(reader.status().message());
}

void XenSymbols::Search(const Source& source, absl::Span<const uint64_t> missing, std::string* problem) {
  if (source.kind == XenSymbolSource::kElf) {
    const ElfNames names = FindElfNames(source.elf, nullptr, missing, 0);
    for (size_t i = 0; i < missing.size(); ++i) {
      const FunctionCache::Found* found = names.At(i);
      if (found == nullptr) {
        cache_.InsertUnnamed(missing[i]);
      } else {
        cache_.Insert(missing[i], *found);
      }
    }
    AddProblem(problem, names.problem);
    return;
  }
  absl::StatusOr<std::unique_ptr<ByteStream>> stream = StreamOfFile(source.path, kMaxTextBytes);
  if (!stream.ok()) {
    AddProblem(problem, stream.status().message());
    return;
  }
  LineReader reader(stream->get());
  AddressMatcher matcher(missing);
  std::vector<std::string> text_names(missing.size());
  const uint64_t functions = MatchText(reader, matcher, text_names);
  if (!reader.status().ok()) {
    AddProblem(problem, reader.status().message());  // half a table names things wrongly
    return;
  }
  if (functions == 0) AddProblem(problem, absl::StrCat(source.path, " has no functions of Xen"));
  const std::vector<AddressMatcher::Match> matches = matcher.Finish();
  for (size_t i = 0; i < matches.size(); ++i) {
    const AddressMatcher::Match& match = matches[i];
    if (!match.found) {
      if (functions > 0) cache_.InsertUnnamed(missing[i]);
      continue;
    }
    // Nothing follows the last one in the table: it is given the rest of its page.
    const uint64_t end = match.end != 0 ? match.end : (match.start / kPageBytes + 1) * kPageBytes;
    if (end > missing[i]) {
      cache_.Insert(missing[i], {.start = match.start, .end = end, .name = text_names[match.slot]});
    } else {
      cache_.InsertUnnamed(missing[i]);
    }
  }
}

XenSymbolSource XenSymbols::Find(const std::string& build_id, std::string* problem) const {
  return FindXenSymbols(options_.search, build_id, problem);
}

Resolved XenSymbols::Resolve(const MappingInfo& mapping, absl::Span<const uint64_t> addresses) {
  Resolved resolved;
  const std::string wanted = mapping.build_id.empty() ? RunningXenBuildId(options_.search) : mapping.build_id;
  if (wanted != cache_of_) {
    cache_.Clear();
    cache_of_ = wanted;
    index_.reset();
  }
  std::vector<uint64_t> inside;
  inside.reserve(addresses.size());
  for (uint64_t address : addresses) {
    if (IsHypervisorAddress(address)) inside.push_back(address);
  }
  const std::vector<uint64_t> missing = cache_.Missing(inside);
  std::shared_ptr<const ElfFile> names_elf;
  if (!missing.empty()) {
    Source source = Find(wanted, &resolved.problem);
    names_elf = source.elf;
    if (source.kind != XenSymbolSource::kNone) {
      source_name_ = source.path;
      Search(source, missing, &resolved.problem);
    }
  }
  size_t named = 0;
  resolved.functions = cache_.Functions(inside, &named);
  if (!resolved.functions.empty()) resolved.source = source_name_;
  if (resolved.problem.empty() && named < addresses.size()) {
    resolved.problem =
        absl::StrCat(addresses.size() - named, " of ", addresses.size(), " addresses are in no function of ",
                     source_name_, " (a livepatch, or code of the firmware)");
  }
  if (options_.lines) AddLines(wanted, names_elf, inside, &resolved);
  return resolved;
}

void XenSymbols::AddLines(const std::string& build_id, const std::shared_ptr<const ElfFile>& names_elf,
                          absl::Span<const uint64_t> addresses, Resolved* resolved) {
  if (looked_for_lines_ && no_lines_for_ == build_id) return;
  std::unique_ptr<DwarfIndex> opened;
  if (index_ == nullptr && !options_.index_dir.empty() && !build_id.empty()) {
    absl::StatusOr<std::unique_ptr<DwarfIndex>> kept =
        DwarfIndex::FromFile(DwarfIndexPath(options_.index_dir, build_id), build_id);
    if (kept.ok()) opened = *std::move(kept);
  }
  if (index_ == nullptr && opened == nullptr) {
    std::string ignored;  // what was passed over is said of the names
    const std::shared_ptr<const ElfFile> elf = names_elf != nullptr && HasDwarf(*names_elf)
                                                   ? names_elf
                                                   : FindXenDwarf(options_.search, build_id, &ignored);
    absl::StatusOr<std::unique_ptr<DwarfIndex>> index = absl::NotFoundError("");
    bool from_folder = false;
    if (elf != nullptr) index = OpenDwarfIndex(*elf, options_.index_dir, &from_folder);
    if (!index.ok()) {
      looked_for_lines_ = true;
      no_lines_for_ = build_id;
      if (elf != nullptr) AddProblem(&resolved->problem, absl::StrCat("no lines: ", index.status().message()));
      return;
    }
    (options_.index_dir.empty() ? index_ : opened) = *std::move(index);
  }
  resolved->lines = (index_ != nullptr ? index_ : opened)->Find(addresses);
}

XenSymbolsInfo XenSymbols::Info(const std::string& build_id) {
  XenSymbolsInfo info;
  info.build_id = build_id.empty() ? RunningXenBuildId(options_.search) : build_id;
  const Source source = Find(info.build_id, &info.problem);
  if (options_.lines) {
    std::string ignored;
    const std::shared_ptr<const ElfFile> elf = FindXenDwarf(options_.search, info.build_id, &ignored);
    if (elf != nullptr) info.lines_source = elf->name();
  }
  if (source.kind == XenSymbolSource::kNone) return info;
  AddProblem(&info.problem, ForEachFunction(source, [&info](uint64_t, absl::string_view) { ++info.symbols; }));
  info.source = source.path;
  info.build_id_matches = source.build_id_matches;
  info.available = info.symbols > 0;
  return info;
}

std::vector<std::pair<uint64_t, uint64_t>> XenSymbols::IdleRanges(const std::string& build_id) {
  std::string problem;
  const Source source = Find(build_id.empty() ? RunningXenBuildId(options_.search) : build_id, &problem);
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  if (source.kind == XenSymbolSource::kNone) return ranges;
  std::vector<uint64_t> starts;
  (void)ForEachFunction(source, [&starts](uint64_t address, absl::string_view name) {
    if (IsIdleFunction(name)) starts.push_back(address);
  });
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  XenSymbols apart(options_);  // its ends come from the same table, whatever the cache holds
  apart.Search(source, starts, &problem);
  size_t named = 0;
  for (const Function& function : apart.cache_.Functions(starts, &named)) {
    ranges.emplace_back(function.start, function.start + function.size);
  }
  return ranges;
}

}  // namespace xenprof::symbols
