#include "xenprof/chunk/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "xenprof/chunk/folder.h"
#include "xenprof/chunk/partial_file.h"

namespace xenprof::chunk {
namespace {

// Colons are kept out of file names: scp and Windows take them for something else.
constexpr char kTimeFormat[] = "%Y-%m-%dT%H-%M-%E6SZ";

}  // namespace

absl::StatusOr<std::vector<FolderEntry>> ListFolder(const std::string& folder) {
  DIR* directory = opendir(folder.c_str());
  if (directory == nullptr) return FileError(folder, "open the folder", errno);
  std::vector<FolderEntry> entries;
  absl::Status status;
  while (true) {
    errno = 0;
    const dirent* entry = readdir(directory);
    if (entry == nullptr) {
      if (errno != 0) status = FileError(folder, "list", errno);
      break;
    }
    struct stat found;
    if (fstatat(dirfd(directory), entry->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) continue;  // removed meanwhile
      status = FileError(absl::StrCat(folder, "/", entry->d_name), "look at", errno);
      break;
    }
    if (!S_ISREG(found.st_mode)) continue;
    entries.push_back(
        {entry->d_name, static_cast<uint64_t>(found.st_size), absl::TimeFromTimespec(found.st_mtim)});
  }
  closedir(directory);
  if (!status.ok()) return status;
  std::sort(entries.begin(), entries.end(),
            [](const FolderEntry& a, const FolderEntry& b) { return a.name < b.name; });
  return entries;
}

std::string ChunkFileName(absl::Time start, uint32_t unique) {
  return absl::StrCat(absl::FormatTime(kTimeFormat, start, absl::UTCTimeZone()), "-",
                      absl::StrFormat("%08x", unique), kChunkSuffix);
}

bool ParseChunkFileName(absl::string_view name, absl::Time* start) {
  if (!absl::ConsumeSuffix(&name, kChunkSuffix) || name.size() < 10) return false;
  const absl::string_view unique = name.substr(name.size() - 9);
  if (unique[0] != '-' || unique.find_first_not_of("0123456789abcdef", 1) != absl::string_view::npos)
    return false;
  name.remove_suffix(9);
  return absl::ParseTime(kTimeFormat, name, absl::UTCTimeZone(), start, nullptr);
}

absl::StatusOr<std::vector<StoredChunk>> ListChunks(const std::string& folder) {
  absl::StatusOr<std::vector<FolderEntry>> entries = ListFolder(folder);
  if (!entries.ok()) return entries.status();
  std::vector<StoredChunk> chunks;
  for (const FolderEntry& entry : *entries) {
    if (!absl::EndsWith(entry.name, kChunkSuffix)) continue;
    StoredChunk chunk{absl::StrCat(folder, "/", entry.name), entry.bytes, entry.modified, entry.modified};
    ParseChunkFileName(entry.name, &chunk.start);
    chunks.push_back(std::move(chunk));
  }
  std::stable_sort(chunks.begin(), chunks.end(),
                   [](const StoredChunk& a, const StoredChunk& b) { return a.start < b.start; });
  return chunks;
}

absl::StatusOr<uint64_t> FreeBytesOf(const std::string& folder) {
  struct statvfs status;
  if (statvfs(folder.c_str(), &status) != 0) return FileError(folder, "ask for free space", errno);
  return static_cast<uint64_t>(status.f_bavail) * status.f_frsize;
}

absl::StatusOr<RetentionReport> EnforceRetention(const std::string& folder, const RetentionLimits& limits,
                                                 absl::Time now, const FreeBytes& free_bytes) {
  absl::StatusOr<std::vector<FolderEntry>> entries = ListFolder(folder);
  if (!entries.ok()) return entries.status();
  RetentionReport report;
  std::vector<StoredChunk> removable;
  for (const FolderEntry& entry : *entries) {
    const bool partial = absl::EndsWith(entry.name, absl::StrCat(kChunkSuffix, kPartialSuffix));
    absl::Time start;
    if (!partial && !ParseChunkFileName(entry.name, &start)) continue;
    report.bytes_kept += entry.bytes;
    if (!partial)
      removable.push_back({absl::StrCat(folder, "/", entry.name), entry.bytes, start, entry.modified});
  }
  std::stable_sort(removable.begin(), removable.end(),
                   [](const StoredChunk& a, const StoredChunk& b) { return a.start < b.start; });

  absl::StatusOr<uint64_t> free = free_bytes(folder);
  if (!free.ok()) return free.status();
  for (const StoredChunk& chunk : removable) {
    const bool too_many = limits.max_bytes != 0 && report.bytes_kept > limits.max_bytes;
    const bool too_old = now - chunk.start > limits.max_age;
    if (!too_many && !too_old && *free >= limits.min_free_bytes) break;
    if (unlink(chunk.path.c_str()) != 0 && errno != ENOENT) return FileError(chunk.path, "remove", errno);
    report.removed.push_back(chunk.path);
    report.bytes_kept -= chunk.bytes;
    free = free_bytes(folder);
    if (!free.ok()) return free.status();
  }
  report.free_bytes = *free;
  report.below_floor = *free < limits.min_free_bytes;
  return report;
}

}  // namespace xenprof::chunk
