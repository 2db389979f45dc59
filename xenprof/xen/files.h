// Small files of /proc, /sys, /boot and /etc below an injectable root.
#ifndef XENPROF_XEN_FILES_H_
#define XENPROF_XEN_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace xenprof::xen {

// root + path, root "" or "/" meaning the real one. `path` starts with a slash.
std::string RootedPath(absl::string_view root, absl::string_view path);
// At most `limit` bytes of the file: NotFound, PermissionDenied, ... as errno says.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t limit = 1 << 20);
// As above without white space at both ends.
absl::StatusOr<std::string> ReadLine(const std::string& path);
bool FileExists(const std::string& path);
// Names in a directory, sorted, without "." and ".."; empty when it cannot be read.
std::vector<std::string> ListDirectory(const std::string& path);

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_FILES_H_
