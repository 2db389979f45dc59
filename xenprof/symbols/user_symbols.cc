#include "xenprof/symbols/user_symbols.h"

#include <sys/auxv.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "xenprof/symbols/address_matcher.h"
#include "xenprof/symbols/byte_stream.h"
#include "xenprof/symbols/debug_files.h"
#include "xenprof/symbols/demangle.h"
#include "xenprof/symbols/elf_names.h"
#include "xenprof/symbols/perf_map.h"
#include "xenprof/symbols/problems.h"

namespace xenprof::symbols {
namespace {

constexpr uint64_t kMaxVdsoBytes = 1 << 20;

std::string Unnamed(size_t named, size_t asked, absl::string_view source) {
  if (named >= asked) return "";
  return absl::StrCat(asked - named, " of ", asked, " addresses have no name in ", source);
}

// Debug files made by eu-strip have the program's own segments; those made by objcopy have lost their file
// offsets.
bool KeepsOffsets(const ElfFile& debug) {
  for (const ElfFile::Segment& segment : debug.segments()) {
    if (segment.type == PT_LOAD && (segment.flags & PF_X) != 0) return segment.file_size > 0;
  }
  return false;
}

// The vdso of this process, whose bytes are those of every process under the same kernel (of the same word
// size).
absl::StatusOr<std::shared_ptr<const ElfFile>> OwnVdso() {
  const unsigned long start = getauxval(AT_SYSINFO_EHDR);
  if (start == 0) return absl::NotFoundError("this kernel has no vdso");
  Elf64_Ehdr header;
  std::memcpy(&header, reinterpret_cast<const void*>(start), sizeof(header));
  // The section table is the last thing in it.
  const uint64_t size = header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize;
  if (size > kMaxVdsoBytes) return absl::OutOfRangeError("this kernel's vdso is too large");
  return ElfFile::Open(MemoryByteSource(std::string(reinterpret_cast<const char*>(start), size)), "[vdso]");
}

}  // namespace

UserSymbols::UserSymbols(UserSymbolsOptions options)
    : options_(std::move(options)), keeper_(options_.root, options_.max_kept_files, options_.max_kept_age) {}

UserSymbols::Cached& UserSymbols::CacheOf(const std::string& key) {
  for (auto it = caches_.begin(); it != caches_.end(); ++it) {
    if (it->key != key) continue;
    caches_.splice(caches_.begin(), caches_, it);
    return caches_.front();
  }
  caches_.emplace_front();
  caches_.front().key = key;
  return caches_.front();
}

size_t UserSymbols::cached_bytes() const {
  size_t bytes = 0;
  for (const Cached& cached : caches_) bytes += cached.functions.bytes() + sizeof(Cached) + 256;
  return bytes;
}

void UserSymbols::TrimCache() {
  size_t bytes = cached_bytes();
  while (bytes > options_.max_cached_bytes && !caches_.empty()) {
    bytes -= caches_.back().functions.bytes() + sizeof(Cached) + 256;
    caches_.pop_back();
  }
}

UserSymbols::Program UserSymbols::OpenProgram(const MappingInfo& mapping) {
  Program program;
  const std::string path(absl::StripSuffix(mapping.name, " (deleted)"));
  ForEachCandidate(options_.root, options_.symbol_roots, options_.live, mapping, keeper_.Kept(mapping),
                   [&](Candidate candidate) {
                     absl::StatusOr<std::shared_ptr<const ByteSource>> source =
                         FileByteSource(std::move(candidate.fd), candidate.where);
                     if (!source.ok()) return false;
                     absl::StatusOr<std::shared_ptr<const ElfFile>> elf =
                         ElfFile::Open(*std::move(source), candidate.where);
                     if (!elf.ok()) {
                       program.problem = std::string(elf.status().message());
                       return false;
                     }
                     if (!mapping.build_id.empty() && (*elf)->build_id() != mapping.build_id) {
                       program.problem = absl::StrCat(
                           candidate.where, " has ",
                           (*elf)->build_id().empty()
                               ? "no build id"
                               : absl::StrCat("build id ", absl::BytesToHexString((*elf)->build_id())),
                           ", sampled was ", absl::BytesToHexString(mapping.build_id),
                           ": the file was replaced, its names are not used");
                       return false;
                     }
                     program.elf = *std::move(elf);
                     program.where = candidate.where;
                     program.problem.clear();
                     if (program.elf->FindSectionOfType(SHT_SYMTAB) == nullptr) {
                       program.debug = FindDebugFile(candidate.folder, options_.debug_dirs, *program.elf,
                                                     path, &program.problem);
                     }
                     return true;
                   });

  // Debug files elsewhere: on this machine's own root, in symbol roots, also straight below them.
  std::vector<std::pair<std::string, std::vector<std::string>>> places;
  for (const std::string& folder : options_.symbol_roots) {
    std::vector<std::string> dirs = options_.debug_dirs;
    dirs.push_back("");
    places.emplace_back(folder, std::move(dirs));
  }
  places.emplace_back(options_.root, options_.debug_dirs);
  const bool wants_debug = program.elf == nullptr || (program.elf->FindSectionOfType(SHT_SYMTAB) == nullptr &&
                                                      program.debug == nullptr);
  const std::string& build_id = program.elf != nullptr ? program.elf->build_id() : mapping.build_id;
  for (const auto& [folder, dirs] : places) {
    if (!wants_debug || program.debug != nullptr) break;
    program.debug = FindByBuildId(folder, dirs, build_id);
  }
  if (program.elf == nullptr && program.debug != nullptr) {
    if (KeepsOffsets(*program.debug)) {
      program.elf = program.debug;
      program.where = program.debug->name();
      program.problem.clear();
    } else if (program.problem.empty()) {
      program.problem = absl::StrCat(path, " is gone, and ", program.debug->name(),
                                     " does not tell where in the file its code was");
    }
  }
  if (program.elf == nullptr && program.problem.empty()) {
    program.problem = absl::StrCat(
        path, mapping.deleted ? " was deleted and no process has it any more" : " is not to be found");
  }
  return program;
}

void UserSymbols::Search(const Program& program, absl::Span<const uint64_t> missing, Cached& cached) {
  // Symbols have addresses; mappings, and so the caller, have offsets in the file.
  std::vector<uint64_t> addresses;
  std::vector<std::pair<uint64_t, uint64_t>> by_address;  // address, offset
  for (uint64_t offset : missing) {
    const std::optional<uint64_t> address = program.elf->AddressOfOffset(offset);
    if (address) {
      by_address.emplace_back(*address, offset);
    } else {
      cached.functions.InsertUnnamed(offset);
    }
  }
  std::sort(by_address.begin(), by_address.end());
  by_address.erase(std::unique(by_address.begin(), by_address.end(),
                               [](const auto& a, const auto& b) { return a.first == b.first; }),
                   by_address.end());
  addresses.reserve(by_address.size());
  for (const auto& [address, offset] : by_address) addresses.push_back(address);
  const ElfNames names = FindElfNames(program.elf, program.debug, addresses, options_.max_decompressed_bytes);
  for (size_t i = 0; i < addresses.size(); ++i) {
    const uint64_t offset = by_address[i].second;
    const FunctionCache::Found* found = names.At(i);
    if (found == nullptr) {
      cached.functions.InsertUnnamed(offset);
      continue;
    }
    const uint64_t before = addresses[i] - found->start;
    cached.functions.Insert(offset, {.start = offset - std::min(before, offset),
                                     .end = offset + (found->end - addresses[i]),
                                     .name = found->name});
  }
  cached.source = names.tables.empty() ? "" : absl::StrCat(program.where, " ", names.tables);
  cached.problem = program.problem;
  AddProblem(&cached.problem, names.problem);
}

Resolved UserSymbols::FromCache(Cached& cached, absl::Span<const uint64_t> addresses) {
  Resolved resolved;
  size_t named = 0;
  resolved.functions = cached.functions.Functions(addresses, &named);
  resolved.source = named == 0 ? "" : cached.source;
  resolved.problem = cached.problem;
  if (resolved.problem.empty()) resolved.problem = Unnamed(named, addresses.size(), cached.source);
  return resolved;
}

Resolved UserSymbols::ResolveFile(const MappingInfo& mapping, absl::Span<const uint64_t> addresses) {
  Resolved resolved;
  keeper_.Expire();
  std::string key = mapping.build_id;
  Program program;
  if (key.empty()) {
    // Without a build id what is known belongs to the file as it is now.
    program = OpenProgram(mapping);
    if (program.elf == nullptr) {
      resolved.problem = program.problem;
      return resolved;
    }
    key = absl::StrCat(program.where, "\n", program.elf->build_id(), "\n", program.elf->source()->Size(),
                       "\n", program.elf->source()->Identity());
  }
  Cached& cached = CacheOf(key);
  const std::vector<uint64_t> missing = cached.functions.Missing(addresses);
  if (!missing.empty()) {
    if (program.elf == nullptr) program = OpenProgram(mapping);
    if (program.elf == nullptr) {
      resolved = FromCache(cached, addresses);
      resolved.problem = program.problem;
      return resolved;
    }
    Search(program, missing, cached);
  }
  resolved = FromCache(cached, addresses);
  TrimCache();
  return resolved;
}

Resolved UserSymbols::ResolveVdso(const MappingInfo& mapping, absl::Span<const uint64_t> addresses) {
  Resolved resolved;
  if (!options_.live || !options_.root.empty()) {
    resolved.problem = "the vdso of a kernel that does not run here";
    return resolved;
  }
  Program program;
  absl::StatusOr<std::shared_ptr<const ElfFile>> vdso = OwnVdso();
  if (!vdso.ok()) {
    resolved.problem = std::string(vdso.status().message());
    return resolved;
  }
  program.elf = *std::move(vdso);
  program.where = "[vdso]";
  if (!mapping.build_id.empty() && mapping.build_id != program.elf->build_id()) {
    resolved.problem = "the sampled vdso is not the one of this kernel and word size";
    return resolved;
  }
  // Offsets, or addresses of one process's copy.
  const uint64_t base = mapping.is_file ? 0 : mapping.start;
  std::vector<uint64_t> offsets;
  for (uint64_t address : addresses) offsets.push_back(address - base);
  Cached& cached = CacheOf("[vdso]");
  const std::vector<uint64_t> missing = cached.functions.Missing(offsets);
  if (!missing.empty()) Search(program, missing, cached);
  resolved = FromCache(cached, offsets);
  for (Function& function : resolved.functions) function.start += base;
  return resolved;
}

Resolved UserSymbols::ResolveGenerated(const MappingInfo& mapping, absl::Span<const uint64_t> addresses) {
  Resolved resolved;
  std::string where, problem;
  UniqueFd fd;
  if (options_.live) {
    fd = OpenPerfMap(options_.root, mapping.pid, &where, &problem);
  } else {
    problem = "generated code of a process that does not run here";
  }
  if (!fd.valid()) {
    fd = keeper_.Kept(mapping);
    // Another descriptor of the same open file: read from its front.
    if (fd.valid()) lseek(fd.get(), 0, SEEK_SET);
    where = absl::StrCat("perf map of process ", mapping.pid, " (kept open)");
  }
  if (!fd.valid()) {
    resolved.problem = problem;
    return resolved;
  }
  PerfMapNames names = FindPerfMapNames(std::move(fd), where, addresses);
  FunctionCache functions(addresses.size() + 1);
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (names.found[i].end != 0) functions.Insert(addresses[i], std::move(names.found[i]));
  }
  size_t named = 0;
  resolved.functions = functions.Functions(addresses, &named);
  if (!resolved.functions.empty()) resolved.source = where;
  resolved.problem = names.problem.empty() ? Unnamed(named, addresses.size(), where) : names.problem;
  return resolved;
}

}  // namespace xenprof::symbols
