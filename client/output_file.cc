#include "client/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace xenprof::client {
namespace {

absl::Status SystemError(absl::string_view name, int error) {
  if (error == EPIPE) return absl::CancelledError(absl::StrCat(name, ": nobody reads it any more"));
  return absl::FailedPreconditionError(absl::StrCat(name, ": ", strerror(error)));
}

// What mkstemp made private becomes what open() would have made. The mask can only be read by setting it.
void ApplyUmask(int fd) {
  const mode_t mask = umask(0);
  umask(mask);
  (void)fchmod(fd, 0666 & ~mask);
}

}  // namespace

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::Create(const std::string& path) {
  std::unique_ptr<OutputFile> file(new OutputFile);
  file->name_ = path;
  if (path == "-") {
    file->name_ = "standard output";
    file->target_ = STDOUT_FILENO;
    return file;
  }
  if (path.empty()) return absl::InvalidArgumentError("the name of the output file is empty");
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    if (S_ISDIR(info.st_mode)) return SystemError(path, EISDIR);
    file->fd_ = UniqueFd(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
    if (!file->fd_.valid()) return SystemError(path, errno);
    file->target_ = file->fd_.get();
    return file;
  }
  // Through a symbolic link the file it leads to is replaced, not the link.
  char resolved[PATH_MAX];
  file->path_ = realpath(path.c_str(), resolved) != nullptr ? resolved : path;
  std::string temporary = absl::StrCat(file->path_, ".XXXXXX");
  file->fd_ = UniqueFd(mkostemp(temporary.data(), O_CLOEXEC));
  if (!file->fd_.valid()) return SystemError(path, errno);
  file->temporary_path_ = temporary;
  file->target_ = file->fd_.get();
  ApplyUmask(file->target_);
  return file;
}

OutputFile::~OutputFile() {
  if (!temporary_path_.empty()) unlink(temporary_path_.c_str());
}

absl::Status OutputFile::Write(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(target_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return SystemError(name_, errno);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Commit() {
  if (temporary_path_.empty()) return absl::OkStatus();
  // A full disk may only show when the file is closed.
  if (close(fd_.release()) != 0) return SystemError(name_, errno);
  if (rename(temporary_path_.c_str(), path_.c_str()) != 0) return SystemError(name_, errno);
  temporary_path_.clear();
  return absl::OkStatus();
}

}  // namespace xenprof::client
