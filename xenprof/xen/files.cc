#include "xenprof/xen/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace xenprof::xen {

std::string RootedPath(absl::string_view root, absl::string_view path) {
  return absl::StrCat(absl::StripSuffix(root, "/"), path);
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t limit) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  std::string text;
  char buffer[16384];
  int error = 0;
  while (text.size() < limit) {
    const ssize_t got = read(fd, buffer, std::min(sizeof(buffer), limit - text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  close(fd);
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot read ", path));
  return text;
}

absl::StatusOr<std::string> ReadLine(const std::string& path) {
  absl::StatusOr<std::string> text = ReadSmallFile(path, 65536);
  if (!text.ok()) return text;
  return std::string(absl::StripAsciiWhitespace(*text));
}

bool FileExists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

std::vector<std::string> ListDirectory(const std::string& path) {
  std::vector<std::string> names;
  DIR* directory = opendir(path.c_str());
  if (directory == nullptr) return names;
  while (const dirent* entry = readdir(directory)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(directory);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace xenprof::xen
