#include "xenprof/chunk/partial_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace xenprof::chunk {
namespace {

std::string Folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

absl::StatusOr<UniqueFd> OpenFolder(const std::string& path) {
  const std::string folder = Folder(path);
  UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return FileError(folder, "open the folder", errno);
  return fd;
}

}  // namespace

absl::Status FileError(absl::string_view file, absl::string_view what, int error_number) {
  const std::string text = absl::StrCat(file, ": cannot ", what, ": ", strerror(error_number));
  // Quotas and RLIMIT_FSIZE are a full disk to whoever writes.
  if (error_number == EDQUOT || error_number == EFBIG) return absl::ResourceExhaustedError(text);
  return absl::Status(absl::ErrnoToStatusCode(error_number), text);
}

PartialFile::PartialFile(std::string path, UniqueFd folder, UniqueFd fd)
    : path_(std::move(path)),
      partial_path_(absl::StrCat(path_, kPartialSuffix)),
      folder_(std::move(folder)),
      fd_(std::move(fd)) {}

absl::StatusOr<std::unique_ptr<PartialFile>> PartialFile::Create(const std::string& path, bool replace) {
  absl::StatusOr<UniqueFd> folder = OpenFolder(path);
  if (!folder.ok()) return folder.status();
  const std::string name = absl::StrCat(BaseName(path), kPartialSuffix);
  if (replace) {
    const UniqueFd old(openat(folder->get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (old.valid() && flock(old.get(), LOCK_EX | LOCK_NB) == 0) unlinkat(folder->get(), name.c_str(), 0);
  }
  UniqueFd fd(openat(folder->get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640));
  if (!fd.valid()) return FileError(absl::StrCat(path, kPartialSuffix), "create", errno);
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return FileError(path, "lock", errno);
  return std::unique_ptr<PartialFile>(new PartialFile(path, *std::move(folder), std::move(fd)));
}

absl::StatusOr<std::unique_ptr<PartialFile>> PartialFile::Resume(const std::string& path) {
  absl::StatusOr<UniqueFd> folder = OpenFolder(path);
  if (!folder.ok()) return folder.status();
  const std::string name = absl::StrCat(BaseName(path), kPartialSuffix);
  UniqueFd fd(openat(folder->get(), name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return FileError(absl::StrCat(path, kPartialSuffix), "open", errno);
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return absl::UnavailableError(
          absl::StrCat(path, kPartialSuffix, ": still being written by another process"));
    }
    return FileError(path, "lock", errno);
  }
  auto file = std::unique_ptr<PartialFile>(new PartialFile(path, *std::move(folder), std::move(fd)));
  struct stat status;
  if (fstat(file->fd_.get(), &status) != 0) return FileError(file->partial_path_, "look at", errno);
  if (!S_ISREG(status.st_mode))
    return FileError(file->partial_path_, "go on with what is no regular file", EINVAL);
  file->bytes_ = static_cast<uint64_t>(status.st_size);
  return file;
}

void PartialFile::Remove(const std::string& partial_path) { unlink(partial_path.c_str()); }

absl::Status PartialFile::CutBack(uint64_t bytes) {
  if (bytes > bytes_) return absl::OutOfRangeError(absl::StrCat(partial_path_, ": cannot cut back forwards"));
  bytes_ = bytes;
  torn_ = true;
  if (ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0)
    return FileError(partial_path_, "cut back", errno);
  torn_ = false;
  return absl::OkStatus();
}

absl::Status PartialFile::Append(absl::string_view piece) {
  if (torn_) {
    absl::Status status = CutBack(bytes_);
    if (!status.ok()) return status;
  }
  uint64_t at = bytes_;
  while (!piece.empty()) {
    const ssize_t written = pwrite(fd_.get(), piece.data(), piece.size(), static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error_number = written < 0 ? errno : EIO;
      absl::Status status = FileError(partial_path_, "write", error_number);
      absl::Status cut = CutBack(bytes_);
      if (cut.ok()) return status;
      return absl::Status(status.code(), absl::StrCat(status.message(), "; then ", cut.message()));
    }
    piece.remove_prefix(static_cast<size_t>(written));
    at += static_cast<uint64_t>(written);
  }
  bytes_ = at;
  return absl::OkStatus();
}

absl::Status PartialFile::Publish(bool sync, bool replace) {
  if (published_) return absl::FailedPreconditionError(absl::StrCat(path_, ": already complete"));
  if (torn_) {
    absl::Status status = CutBack(bytes_);
    if (!status.ok()) return status;
  }
  if (sync && fsync(fd_.get()) != 0) return FileError(partial_path_, "bring to the disk", errno);
  const std::string to = BaseName(path_);
  const std::string from = absl::StrCat(to, kPartialSuffix);
  int result =
      renameat2(folder_.get(), from.c_str(), folder_.get(), to.c_str(), replace ? 0 : RENAME_NOREPLACE);
  if (result != 0 && errno == EINVAL && !replace) {
    // A file system without RENAME_NOREPLACE (NFS): a hard link refuses an existing name just as well.
    result = linkat(folder_.get(), from.c_str(), folder_.get(), to.c_str(), 0);
    if (result == 0) unlinkat(folder_.get(), from.c_str(), 0);
  }
  if (result != 0) return FileError(path_, "put in place", errno);
  published_ = true;
  if (sync && fsync(folder_.get()) != 0)
    return FileError(Folder(path_), "bring the folder to the disk", errno);
  return absl::OkStatus();
}

}  // namespace xenprof::chunk
