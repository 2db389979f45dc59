#include "daemon/state_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace xenprof::daemon {
namespace {

absl::Status MakeFolders(const std::string& path) {
  for (size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at);
    const std::string part = path.substr(0, at);
    if (mkdir(part.c_str(), at == std::string::npos ? 0750 : 0755) != 0 && errno != EEXIST) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot make the folder ", part, ": ", strerror(errno)));
    }
    if (at != std::string::npos) ++at;
  }
  struct stat status;
  if (stat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat("the state directory ", path, " is no folder"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<UniqueFd> HoldStateDir(const std::string& path) {
  absl::Status made = MakeFolders(path);
  if (!made.ok()) return made;
  const std::string lock = path + "/lock";
  UniqueFd fd(open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640));
  if (!fd.valid()) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write in the state directory: ", lock, ": ", strerror(errno)));
  }
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    char pid[32] = {};
    const ssize_t size = pread(fd.get(), pid, sizeof(pid) - 1, 0);
    return absl::FailedPreconditionError(absl::StrCat(
        "another xenprofd", size > 0 ? absl::StrCat(" (pid ", absl::StripAsciiWhitespace(pid), ")") : "",
        " has the state directory ", path));
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd.get(), 0) != 0 || pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) {
    // The lock counts, not the number in it.
  }
  return fd;
}

}  // namespace xenprof::daemon
