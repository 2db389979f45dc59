#include "xenprof/symbols/kernel_symbols.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "xenprof/base/types.h"
#include "xenprof/symbols/address_matcher.h"
#include "xenprof/symbols/byte_stream.h"
#include "xenprof/symbols/symbol_text.h"

namespace xenprof::symbols {
namespace {

constexpr uint64_t kMaxTableBytes = 512 << 20;
// With kptr_restrict every address is 0; this many text symbols at 0 are enough to know (per-CPU ones are of
// type A).
constexpr int kZeroesThatProve = 64;

bool IsKernelAddress(uint64_t address) {
  return address >= kHypervisorStart && !IsHypervisorAddress(address);
}

// "[kernel]", "[module]" to "" and "module"; module file names have '-' where the kernel has '_'.
std::string ModuleOfMapping(absl::string_view name) {
  if (name.substr(0, 7) == "[kernel") return "";
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') name = name.substr(1, name.size() - 2);
  return absl::StrReplaceAll(name, {{"-", "_"}});
}

std::string ReadSmallFile(const std::string& path) {
  absl::StatusOr<std::unique_ptr<ByteStream>> stream = StreamOfFile(path, 1 << 20);
  if (!stream.ok()) return "";
  absl::StatusOr<std::string> bytes = ReadAll(**stream);
  return bytes.ok() ? *std::move(bytes) : "";
}

}  // namespace

std::string BuildIdOfNotes(absl::string_view notes, size_t alignment) {
  const auto pad = [alignment](uint64_t size) { return (size + alignment - 1) & ~uint64_t{alignment - 1}; };
  Elf64_Nhdr header;
  while (notes.size() >= sizeof(header)) {
    std::memcpy(&header, notes.data(), sizeof(header));
    const uint64_t name_at = sizeof(header);
    const uint64_t desc_at = pad(name_at + header.n_namesz);
    const uint64_t end = desc_at + header.n_descsz;
    if (end > notes.size()) break;
    if (header.n_type == NT_GNU_BUILD_ID &&
        notes.substr(name_at, header.n_namesz) == absl::string_view("GNU", 4) && header.n_descsz > 0 &&
        header.n_descsz <= 64) {
      return std::string(notes.substr(desc_at, header.n_descsz));
    }
    notes.remove_prefix(std::min<uint64_t>(pad(end), notes.size()));
  }
  return "";
}

uint32_t KernelSymbols::GroupOfModule(absl::string_view module) {
  if (module.empty()) return 0;
  const auto it = std::find(modules_.begin(), modules_.end(), module);
  if (it != modules_.end()) return it - modules_.begin();
  modules_.emplace_back(module);
  return modules_.size() - 1;
}

std::string KernelSymbols::Refusal(const MappingInfo& mapping, std::string* doubt) const {
  if (!options_.kallsyms_path.empty()) return "";
  const std::string module = ModuleOfMapping(mapping.name);
  const std::string path =
      options_.root + (module.empty() ? "/sys/kernel/notes"
                                      : absl::StrCat("/sys/module/", module, "/notes/.note.gnu.build-id"));
  if (!mapping.build_id.empty()) {
    const std::string running = BuildIdOfNotes(ReadSmallFile(path));
    if (!running.empty() && running != mapping.build_id) {
      return absl::StrCat("sampled in a kernel or module with build id ",
                          absl::BytesToHexString(mapping.build_id), ", but the one running here has ",
                          absl::BytesToHexString(running),
                          "; give the table of the sampled one with --kallsyms");
    }
    if (running.empty() && !options_.live) {
      return absl::StrCat("no build id of the running kernel in ", path,
                          " to compare with; give the table of the sampled one with --kallsyms");
    }
  } else if (!options_.live) {
    return "it is not known which kernel was sampled; give its table with --kallsyms";
  }
  if (!options_.live) {
    *doubt = "names are those of this boot of the same kernel; functions move at every boot (KASLR)";
  }
  return "";
}

std::string KernelSymbols::Load() {
  const std::string path =
      options_.kallsyms_path.empty() ? options_.root + "/proc/kallsyms" : options_.kallsyms_path;
  absl::StatusOr<std::unique_ptr<ByteStream>> stream = StreamOfFile(path, kMaxTableBytes);
  if (!stream.ok()) return absl::StrCat("no kernel symbols: ", stream.status().message());

  LineReader reader(stream->get());
  auto table = std::make_unique<SymbolTable>();
  absl::string_view line;
  SymbolLine symbol;
  uint64_t text_symbols = 0, zero_text_symbols = 0;
  while (reader.Next(&line)) {
    if (!ParseSymbolLine(line, &symbol)) continue;
    if (symbol.address == 0 && symbol.IsText()) {
      if (++zero_text_symbols >= kZeroesThatProve && text_symbols == 0) break;
      continue;
    }
    // Absolute per-CPU symbols are small numbers; what lies in Xen's range is none of the kernel's.
    if (!IsKernelAddress(symbol.address)) continue;
    if (symbol.IsText()) ++text_symbols;
    if (symbol.name == "_text" || (text_start_ == 0 && symbol.name == "_stext")) text_start_ = symbol.address;
    table->Add(symbol);
  }
  if (!reader.status().ok()) {
    return absl::StrCat("no kernel symbols: ",
                        reader.status().message());  // half a table names things wrongly
  }
  if (text_symbols == 0) {
    if (zero_text_symbols > 0) {
      return absl::StrCat(path,
                          " shows only zeroes for addresses: not root, or kernel.kptr_restrict is 2 "
                          "(sysctl kernel.kptr_restrict=1 lets root see them)");
    }
    return absl::StrCat("no kernel symbols: ", path, " has no functions");
  }
  table->Finish();
  table_ = std::move(table);
  return "";
}

std::string KernelSymbols::Search(const MappingInfo& mapping, absl::Span<const uint64_t> missing) {
  if (table_ == nullptr) {
    std::string problem = Load();
    if (!problem.empty()) return problem;
  }
  AddressMatcher matcher(missing);
  std::vector<std::string> names(missing.size());
  std::string module;
  uint32_t group = 0;
  const bool whole = table_->Around(missing, [&](const SymbolLine& symbol) {
    if (symbol.module != module) {
      module = std::string(symbol.module);
      group = GroupOfModule(module);
    }
    const size_t slot = matcher.Add(symbol.address, SymbolLineRank(symbol), group);
    if (slot != AddressMatcher::kNone) names[slot] = std::string(symbol.name);
  });
  if (!whole) return "no kernel symbols: no memory for them";

  const std::vector<AddressMatcher::Match> matches = matcher.Finish();
  for (size_t i = 0; i < matches.size(); ++i) {
    const AddressMatcher::Match& match = matches[i];
    if (!match.found) {
      cache_.InsertUnnamed(missing[i]);
      continue;
    }
    // Nothing follows the last one in the table: it is given the rest of its page.
    uint64_t end = match.end != 0 ? match.end : (missing[i] / kPageBytes + 1) * kPageBytes;
    // What follows a module's last function may belong to another module.
    if (mapping.start <= missing[i] && missing[i] < mapping.end) end = std::min(end, mapping.end);
    if (end <= missing[i]) {
      cache_.InsertUnnamed(missing[i]);
      continue;
    }
    cache_.Insert(missing[i], {.start = match.start,
                               .end = end,
                               .name = names[match.slot],
                               .group = static_cast<uint32_t>(match.ref)});
  }
  return "";
}

Resolved KernelSymbols::Resolve(const MappingInfo& mapping, absl::Span<const uint64_t> addresses) {
  Resolved resolved;
  std::string doubt;
  resolved.problem = Refusal(mapping, &doubt);
  if (!resolved.problem.empty()) return resolved;
  resolved.source = options_.kallsyms_path.empty() ? "/proc/kallsyms" : options_.kallsyms_path;

  std::vector<uint64_t> wanted;
  wanted.reserve(addresses.size());
  for (uint64_t address : addresses) {
    if (IsKernelAddress(address)) wanted.push_back(address);
  }
  const std::vector<uint64_t> missing = cache_.Missing(wanted);
  if (!missing.empty()) resolved.problem = Search(mapping, missing);

  const std::string module = ModuleOfMapping(mapping.name);
  const uint32_t group = GroupOfModule(module);
  size_t named = 0;
  resolved.functions = cache_.Functions(wanted, &named, [&](uint32_t of) {
    // BPF programs and the trampolines of ftrace and kprobes are of no module file.
    return group == 0 || of == group || modules_[of] == "bpf" || modules_[of].substr(0, 9) == "__builtin";
  });
  if (resolved.problem.empty() && named < addresses.size()) {
    resolved.problem = absl::StrCat(
        addresses.size() - named, " of ", addresses.size(), " addresses are in no function of ",
        module.empty() ? "the kernel" : absl::StrCat("module ", module), " in ", resolved.source);
  }
  if (resolved.problem.empty()) resolved.problem = doubt;
  if (resolved.functions.empty() && !resolved.problem.empty()) resolved.source.clear();
  if (!options_.live && options_.kallsyms_path.empty() && mapping.start != 0 && module.empty() &&
      text_start_ != 0 && mapping.start == text_start_) {
    if (resolved.problem == doubt) resolved.problem.clear();  // the same boot, by where its text lies
  }
  return resolved;
}

}  // namespace xenprof::symbols
