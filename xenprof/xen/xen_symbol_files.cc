#include "xenprof/xen/xen_symbol_files.h"

#include <elf.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "xenprof/xen/files.h"

namespace xenprof::xen {
namespace {

// The build id among the notes of `data`, empty when there is none.
std::string BuildIdInNotes(Elf_Data* data) {
  if (data == nullptr) return "";
  GElf_Nhdr note;
  size_t name_at = 0, content_at = 0;
  for (size_t at = 0; (at = gelf_getnote(data, at, &note, &name_at, &content_at)) > 0;) {
    if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != sizeof("GNU")) continue;
    const char* bytes = static_cast<const char*>(data->d_buf);
    if (memcmp(bytes + name_at, "GNU", sizeof("GNU")) == 0)
      return std::string(bytes + content_at, note.n_descsz);
  }
  return "";
}

std::string FindBuildId(Elf* elf) {
  size_t headers = 0;
  if (elf_getphdrnum(elf, &headers) == 0) {
    for (size_t i = 0; i < headers; ++i) {
      GElf_Phdr header;
      if (gelf_getphdr(elf, static_cast<int>(i), &header) == nullptr || header.p_type != PT_NOTE) continue;
      std::string id = BuildIdInNotes(
          elf_getdata_rawchunk(elf, static_cast<int64_t>(header.p_offset), header.p_filesz, ELF_T_NHDR));
      if (!id.empty()) return id;
    }
  }
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf, section)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr || header.sh_type != SHT_NOTE) continue;
    std::string id = BuildIdInNotes(elf_getdata(section, nullptr));
    if (!id.empty()) return id;
  }
  return "";
}

}  // namespace

absl::StatusOr<std::string> ElfBuildId(const std::string& path) {
  elf_version(EV_CURRENT);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  Elf* elf = elf_begin(fd, ELF_C_READ_MMAP, nullptr);
  std::string id;
  if (elf != nullptr && elf_kind(elf) == ELF_K_ELF) id = FindBuildId(elf);
  if (elf != nullptr) elf_end(elf);
  close(fd);
  if (id.empty()) return absl::NotFoundError(absl::StrCat(path, " is no ELF file with a build id"));
  return id;
}

XenSymbolFiles FindXenSymbolFiles(const std::string& root, const std::string& build_id) {
  XenSymbolFiles found;
  found.xensyms = FileExists(RootedPath(root, "/proc/xen/xensyms"));
  found.xenfs_mounted = found.xensyms || FileExists(RootedPath(root, "/proc/xen/capabilities"));
  for (const char* folder : {"/boot", "/usr/lib/debug/boot", "/usr/lib/debug"}) {
    const std::string path = RootedPath(root, folder);
    for (const std::string& name : ListDirectory(path)) {
      const std::string file = absl::StrCat(path, "/", name);
      if (absl::StartsWith(name, "xen-syms") && !absl::EndsWith(name, ".map")) {
        const absl::StatusOr<std::string> id = ElfBuildId(file);
        if (!id.ok()) continue;
        if (!build_id.empty() && *id == build_id) {
          found.matching = file;
        } else {
          found.mismatched.push_back(file);
        }
      } else if (absl::StartsWith(name, "xen-") && absl::EndsWith(name, ".map")) {
        found.maps.push_back(file);
      }
    }
  }
  return found;
}

}  // namespace xenprof::xen
