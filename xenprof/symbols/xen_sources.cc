#include "xenprof/symbols/xen_sources.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "xenprof/symbols/byte_stream.h"
#include "xenprof/symbols/debug_files.h"
#include "xenprof/symbols/problems.h"

namespace xenprof::symbols {
namespace {

constexpr uint64_t kMaxImageBytes = 256 << 20;
constexpr absl::string_view kElfFolders[] = {"/usr/lib/debug/boot", "/boot", "/usr/lib/debug", ""};

std::vector<std::string> FilesIn(const std::string& folder, absl::string_view prefix) {
  std::vector<std::string> names;
  DIR* dir = opendir(folder.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = readdir(dir)) {
    if (absl::StartsWith(entry->d_name, prefix)) names.emplace_back(entry->d_name);
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

bool StartsLikeElf(const ByteSource& source) {
  char magic[4];
  return source.ReadExactly(0, magic, sizeof(magic)) && std::memcmp(magic, ELFMAG, sizeof(magic)) == 0;
}

absl::StatusOr<std::shared_ptr<const ElfFile>> OpenElf(const std::string& path, uint64_t max_bytes) {
  absl::StatusOr<std::shared_ptr<const ByteSource>> source = SourceOfMaybeCompressed(path, max_bytes);
  if (!source.ok()) return source.status();
  return ElfFile::Open(*std::move(source), path);
}

std::string Mismatch(const std::string& path, absl::string_view has, absl::string_view wanted) {
  return absl::StrCat(path, " is of another Xen (build id ",
                      has.empty() ? "missing" : absl::BytesToHexString(has), ", needed is ",
                      absl::BytesToHexString(wanted), ") and not used");
}

// Calls `visit` for every xen-syms ELF file of build id `wanted` until it returns true.
void ForEachElf(const XenSearchOptions& options, const std::string& wanted, std::string* problem,
                const std::function<bool(std::shared_ptr<const ElfFile>)>& visit) {
  if (wanted.empty()) return;
  std::vector<std::string> folders = options.symbol_roots;
  folders.push_back(options.root);
  for (const std::string& folder : folders) {
    std::shared_ptr<const ElfFile> debug = FindByBuildId(folder, options.debug_dirs, wanted);
    if (debug != nullptr && visit(debug)) return;
    for (absl::string_view below : kElfFolders) {
      if (below.empty() && folder == options.root) continue;  // not in "/"
      const std::string place = absl::StrCat(folder, below);
      for (const std::string& name : FilesIn(place, "xen-syms")) {
        const std::string path = absl::StrCat(place, "/", name);
        absl::StatusOr<std::shared_ptr<const ElfFile>> elf = OpenElf(path, options.max_decompressed_bytes);
        if (!elf.ok()) continue;
        if (!XenBuildIdMatches((*elf)->build_id(), wanted)) {
          AddProblem(problem, Mismatch(path, (*elf)->build_id(), wanted));
        } else if (visit(*std::move(elf))) {
          return;
        }
      }
    }
  }
}

// A boot image holds Xen's build id note: the note's header, "GNU" and the id.
bool ImageHasBuildId(const std::string& path, absl::string_view build_id) {
  absl::StatusOr<std::unique_ptr<ByteStream>> stream = StreamOfFile(path, kMaxImageBytes);
  if (!stream.ok()) return false;
  const std::string note = absl::StrCat(absl::string_view("\x03\0\0\0GNU\0", 8), build_id);
  std::string window;
  std::vector<char> block(256 << 10);
  while (true) {
    const absl::StatusOr<size_t> got = (*stream)->Read(block.data(), block.size());
    if (!got.ok() || *got == 0) return false;
    window.append(block.data(), *got);
    if (absl::StrContains(window, note)) return true;
    if (window.size() > note.size()) window.erase(0, window.size() - note.size());
  }
}

std::string FindMap(const XenSearchOptions& options, const std::string& wanted, std::string* problem) {
  if (wanted.empty()) return "";
  std::vector<std::string> folders = options.symbol_roots;
  folders.push_back(options.root);
  for (const std::string& folder : folders) {
    const std::string boot = folder + "/boot";
    for (const std::string& name : FilesIn(boot, "xen-")) {
      if (!absl::EndsWith(name, ".map")) continue;
      const std::string stem = absl::StrCat(boot, "/", absl::StripSuffix(name, ".map"));
      if (ImageHasBuildId(stem + ".gz", wanted) || ImageHasBuildId(stem, wanted)) return stem + ".map";
      AddProblem(problem, absl::StrCat(stem, ".map is not known to be of the Xen in question and not used"));
    }
  }
  return "";
}

bool IsReadable(const std::string& path) {
  absl::StatusOr<std::unique_ptr<ByteStream>> stream = StreamOfFile(path, kMaxImageBytes);
  char byte;
  if (!stream.ok()) return false;
  const absl::StatusOr<size_t> got = (*stream)->Read(&byte, 1);
  return got.ok() && *got == 1;
}

std::string SysfsBuildId(const std::string& root) {
  absl::StatusOr<std::unique_ptr<ByteStream>> stream =
      StreamOfFile(root + "/sys/hypervisor/properties/buildid", 4096);
  if (!stream.ok()) return "";
  absl::StatusOr<std::string> bytes = ReadAll(**stream);
  // "<denied>" and the like are no build ids.
  return bytes.ok() && !absl::StartsWith(*bytes, "<") ? *std::move(bytes) : "";
}

}  // namespace

std::string RunningXenBuildId(const XenSearchOptions& options) {
  if (!options.build_id.empty() || !options.live) return options.build_id;
  return SysfsBuildId(options.root);
}

bool XenBuildIdMatches(absl::string_view of_file, absl::string_view wanted) {
  if (of_file == wanted) return !wanted.empty();
  return wanted.size() >= 4 && wanted.size() < of_file.size() && absl::StartsWith(of_file, wanted) &&
         of_file[wanted.size()] == '\0';
}

XenSymbolSource FindXenSymbols(const XenSearchOptions& options, const std::string& wanted,
                               std::string* problem) {
  XenSymbolSource found;
  for (const std::string& path : options.files) {
    absl::StatusOr<std::shared_ptr<const ByteSource>> source =
        SourceOfMaybeCompressed(path, options.max_decompressed_bytes);
    if (!source.ok()) {
      AddProblem(problem, source.status().message());
      continue;
    }
    if (!StartsLikeElf(**source)) {
      found.kind = XenSymbolSource::kText;
      found.path = path;
      return found;
    }
    absl::StatusOr<std::shared_ptr<const ElfFile>> elf = ElfFile::Open(*std::move(source), path);
    if (!elf.ok()) {
      AddProblem(problem, elf.status().message());
    } else if (!wanted.empty() && !XenBuildIdMatches((*elf)->build_id(), wanted)) {
      AddProblem(problem, Mismatch(path, (*elf)->build_id(), wanted));
    } else {
      found = {.kind = XenSymbolSource::kElf,
               .path = path,
               .elf = *std::move(elf),
               .build_id_matches = !wanted.empty()};
      return found;
    }
  }

  const std::string xensyms =
      options.xensyms_path.empty() ? options.root + "/proc/xen/xensyms" : options.xensyms_path;
  if (IsReadable(xensyms)) {
    // It is of the Xen that runs, whichever that is.
    const std::string running = options.live ? RunningXenBuildId(options) : SysfsBuildId(options.root);
    const bool same = XenBuildIdMatches(wanted, running) || XenBuildIdMatches(running, wanted);
    if (same || (options.live && (wanted.empty() || running.empty()))) {
      found = {.kind = XenSymbolSource::kText, .path = xensyms, .elf = nullptr, .build_id_matches = same};
      return found;
    }
    AddProblem(problem, wanted.empty() ? absl::StrCat("it is not known which Xen was sampled, so ", xensyms,
                                                  " is not used; give its symbols with --xen-symbols")
                                   : Mismatch(xensyms, running, wanted));
  }

  ForEachElf(options, wanted, problem, [&found](std::shared_ptr<const ElfFile> elf) {
    if (elf->FindSectionOfType(SHT_SYMTAB) == nullptr) return false;
    found = {.kind = XenSymbolSource::kElf, .path = elf->name(), .elf = elf, .build_id_matches = true};
    return true;
  });
  if (found.kind != XenSymbolSource::kNone) return found;

  const std::string map = FindMap(options, wanted, problem);
  if (!map.empty()) {
    found = {.kind = XenSymbolSource::kText, .path = map, .elf = nullptr, .build_id_matches = true};
    return found;
  }
  AddProblem(problem, wanted.empty()
                      ? "no Xen symbols: no readable /proc/xen/xensyms, and the build id of Xen is not known"
                      : absl::StrCat("no Xen symbols: no readable /proc/xen/xensyms and no xen-syms or map "
                                     "of build id ",
                                     absl::BytesToHexString(wanted)));
  return found;
}

bool HasDwarf(const ElfFile& elf) {
  return elf.FindSection(".debug_info") != nullptr || elf.FindSection(".zdebug_info") != nullptr;
}

std::shared_ptr<const ElfFile> FindXenDwarf(const XenSearchOptions& options, const std::string& wanted,
                                            std::string* problem) {
  for (const std::string& path : options.files) {
    absl::StatusOr<std::shared_ptr<const ElfFile>> elf = OpenElf(path, options.max_decompressed_bytes);
    if (!elf.ok() || !HasDwarf(**elf)) continue;
    if (wanted.empty() || XenBuildIdMatches((*elf)->build_id(), wanted)) return *std::move(elf);
  }
  std::shared_ptr<const ElfFile> found;
  ForEachElf(options, wanted, problem, [&found](std::shared_ptr<const ElfFile> elf) {
    if (!HasDwarf(*elf)) return false;
    found = std::move(elf);
    return true;
  });
  return found;
}

}  // namespace xenprof::symbols
