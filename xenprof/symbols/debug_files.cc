#include "xenprof/symbols/debug_files.h"

#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "xenprof/symbols/file_access.h"

namespace xenprof::symbols {
namespace {

constexpr uint64_t kMaxDebugLinkBytes = 4096;
// Checking a CRC means reading the whole file.
constexpr uint64_t kMaxCheckedBytes = uint64_t{2} << 30;

uint32_t Crc32Of(const ByteSource& source) {
  std::vector<char> block(256 << 10);
  uint32_t crc = crc32(0, nullptr, 0);
  for (uint64_t at = 0; at < source.Size();) {
    const size_t got = source.ReadAt(at, block.data(), block.size());
    if (got == 0) break;
    crc = crc32(crc, reinterpret_cast<const Bytef*>(block.data()), got);
    at += got;
  }
  return crc;
}

std::shared_ptr<const ElfFile> OpenElf(const std::string& folder, const std::string& path) {
  UniqueFd fd = OpenBelow(folder, path);
  if (!fd.valid()) return nullptr;
  absl::StatusOr<std::shared_ptr<const ByteSource>> source = FileByteSource(std::move(fd), folder + path);
  if (!source.ok()) return nullptr;
  absl::StatusOr<std::shared_ptr<const ElfFile>> file = ElfFile::Open(*std::move(source), folder + path);
  return file.ok() ? *std::move(file) : nullptr;
}

}  // namespace

std::shared_ptr<const ElfFile> FindByBuildId(const std::string& folder, const std::vector<std::string>& dirs,
                                             absl::string_view build_id) {
  if (build_id.size() < 2) return nullptr;
  const std::string hex = absl::BytesToHexString(build_id);
  for (const std::string& dir : dirs) {
    std::shared_ptr<const ElfFile> file =
        OpenElf(folder, absl::StrCat(dir, "/.build-id/", hex.substr(0, 2), "/", hex.substr(2), ".debug"));
    if (file != nullptr && file->build_id() == build_id) return file;
  }
  return nullptr;
}

std::shared_ptr<const ElfFile> FindDebugFile(const std::string& folder, const std::vector<std::string>& dirs,
                                             const ElfFile& program, absl::string_view path,
                                             std::string* problem) {
  std::shared_ptr<const ElfFile> found = FindByBuildId(folder, dirs, program.build_id());
  if (found != nullptr) return found;

  const ElfFile::Section* section = program.FindSection(".gnu_debuglink");
  if (section == nullptr) return nullptr;
  // A file name, zero, padding to 4 bytes, a CRC-32 (GDB manual, "Debugging Information in Separate Files").
  const absl::StatusOr<std::string> link = program.ReadSection(*section, kMaxDebugLinkBytes);
  if (!link.ok() || link->size() < 8) return nullptr;
  const std::string name = link->substr(0, link->find('\0'));
  const size_t crc_at = (name.size() + 1 + 3) & ~size_t{3};
  if (name.empty() || name.find('/') != std::string::npos || crc_at + 4 > link->size()) return nullptr;
  uint32_t crc;
  std::memcpy(&crc, link->data() + crc_at, sizeof(crc));

  const std::string beside(path.substr(0, path.rfind('/')));
  std::vector<std::string> places = {absl::StrCat(beside, "/", name), absl::StrCat(beside, "/.debug/", name)};
  for (const std::string& dir : dirs) places.push_back(absl::StrCat(dir, beside, "/", name));
  for (const std::string& place : places) {
    if (place == path) continue;
    std::shared_ptr<const ElfFile> file = OpenElf(folder, place);
    if (file == nullptr) continue;
    if (!program.build_id().empty() && !file->build_id().empty()) {
      if (program.build_id() == file->build_id()) return file;
      *problem = absl::StrCat(file->name(), " is of another build");
    } else if (file->source()->Size() <= kMaxCheckedBytes) {
      if (Crc32Of(*file->source()) == crc) return file;
      *problem = absl::StrCat(file->name(), " has not the checksum that ", program.name(), " asks for");
    }
  }
  return nullptr;
}

}  // namespace xenprof::symbols
