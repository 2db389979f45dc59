#include "xenprof/xen/vpmu_saved.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace xenprof::xen {
namespace {

constexpr size_t kMaxFileBytes = 256;
constexpr absl::string_view kFirstLine = "xenprof-vpmu 1";

bool IsBootId(absl::string_view text) {
  if (text.size() != 36) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : !absl::ascii_isxdigit(static_cast<unsigned char>(text[i]))) return false;
  }
  return true;
}

// Writes all of `text`; errno or 0.
int WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t put = write(fd, text.data(), text.size());
    if (put < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    text.remove_prefix(static_cast<size_t>(put));
  }
  return 0;
}

}  // namespace

std::string FormatSavedVpmu(const SavedVpmu& saved) {
  return absl::StrFormat("%s\nboot_id %s\nmode %s\nfeatures 0x%x\nend\n", kFirstLine, saved.boot_id,
                         PmuModeName(saved.mode), saved.features);
}

absl::StatusOr<SavedVpmu> ParseSavedVpmu(absl::string_view text) {
  if (text.size() > kMaxFileBytes) return absl::InvalidArgumentError("longer than such a file can be");
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (lines.empty() || lines[0] != kFirstLine) {
    return absl::InvalidArgumentError(absl::StrCat("the first line is not \"", kFirstLine, "\""));
  }
  if (lines.size() != 6 || lines[4] != "end" || !lines[5].empty()) {
    return absl::InvalidArgumentError("not five lines with \"end\" as the last: cut off or added to");
  }
  SavedVpmu saved;
  absl::string_view value = lines[1];
  if (!absl::ConsumePrefix(&value, "boot_id ") || !IsBootId(value)) {
    return absl::InvalidArgumentError("line 2 is not a boot_id");
  }
  saved.boot_id = std::string(value);
  value = lines[2];
  const bool has_mode = absl::ConsumePrefix(&value, "mode ");
  const std::optional<PmuMode> mode = ParsePmuMode(value);
  if (!has_mode || !mode) return absl::InvalidArgumentError("line 3 is not a mode: off, self, hv or all");
  saved.mode = *mode;
  value = lines[3];
  // Xen keeps features in 32 bits (vpmu_features, xen/arch/x86/cpu/vpmu.c).
  if (!absl::ConsumePrefix(&value, "features 0x") || value.empty() || value.size() > 8 ||
      !absl::SimpleHexAtoi(value, &saved.features)) {
    return absl::InvalidArgumentError("line 4 is not features in hexadecimal, at most 32 bits");
  }
  return saved;
}

VpmuStore::~VpmuStore() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

std::string VpmuStore::path() const { return absl::StrCat(state_dir_, "/vpmu-saved"); }

absl::Status VpmuStore::Lock() {
  if (lock_fd_ >= 0) return absl::OkStatus();
  const std::string lock_path = absl::StrCat(state_dir_, "/vpmu.lock");
  const int fd = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", lock_path));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    close(fd);
    if (error == EWOULDBLOCK) {
      return absl::FailedPreconditionError(absl::StrCat(
          "another process, most likely a running xenprofd, controls the vPMU (it holds ", lock_path, ")"));
    }
    return absl::ErrnoToStatus(error, absl::StrCat("cannot lock ", lock_path));
  }
  lock_fd_ = fd;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<SavedVpmu>> VpmuStore::Load() {
  const int fd = open(path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) return std::optional<SavedVpmu>();
  if (fd < 0 && errno != ELOOP) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path()));

  absl::Status problem;
  std::string text;
  struct stat info;
  if (fd < 0) {
    problem = absl::InvalidArgumentError("it is a symbolic link");
  } else if (fstat(fd, &info) != 0) {
    problem = absl::ErrnoToStatus(errno, "fstat");
  } else if (!S_ISREG(info.st_mode)) {
    problem = absl::InvalidArgumentError("it is not a regular file");
  } else if (info.st_uid != geteuid() && info.st_uid != 0) {
    problem = absl::InvalidArgumentError(absl::StrCat("it belongs to user ", info.st_uid));
  } else if ((info.st_mode & 022) != 0) {
    problem = absl::InvalidArgumentError("others than its owner may write it");
  } else {
    char buffer[kMaxFileBytes + 1];
    ssize_t got;
    while ((got = read(fd, buffer, sizeof(buffer))) != 0) {
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) break;
      text.append(buffer, static_cast<size_t>(got));
      if (text.size() > kMaxFileBytes) break;
    }
    if (got < 0) {
      const int error = errno;
      close(fd);
      return absl::ErrnoToStatus(error, absl::StrCat("cannot read ", path()));
    }
  }
  if (fd >= 0) close(fd);
  if (problem.ok()) {
    absl::StatusOr<SavedVpmu> saved = ParseSavedVpmu(text);
    if (saved.ok()) return std::optional<SavedVpmu>(*std::move(saved));
    problem = saved.status();
  }
  const std::string aside = absl::StrCat(path(), ".refused");
  std::string outcome = absl::StrCat("moved to ", aside);
  if (rename(path().c_str(), aside.c_str()) != 0) {
    outcome = absl::StrCat("and could not be moved to ", aside);
  } else if (absl::Status synced = SyncDirectory(); !synced.ok()) {
    outcome = absl::StrCat(outcome, ", not yet durably");
  }
  return absl::InvalidArgumentError(absl::StrCat(path(), " is not what xenprofd writes: ", problem.message(),
                                                 "; nothing is restored from it, ", outcome));
}

absl::Status VpmuStore::Save(const SavedVpmu& saved) {
  const std::string temporary = absl::StrCat(path(), ".new");
  if (unlink(temporary.c_str()) != 0 && errno != ENOENT) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove ", temporary));
  }
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", temporary));
  int error = WriteAll(fd, FormatSavedVpmu(saved));
  if (error == 0 && fsync(fd) != 0) error = errno;
  if (close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && rename(temporary.c_str(), path().c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(temporary.c_str());
    return absl::ErrnoToStatus(error, absl::StrCat("cannot write ", path()));
  }
  return SyncDirectory();
}

absl::Status VpmuStore::Remove() {
  if (unlink(path().c_str()) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove ", path()));
  }
  return SyncDirectory();
}

absl::Status VpmuStore::SyncDirectory() const {
  const int fd = open(state_dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", state_dir_));
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot fsync ", state_dir_));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadBootId(const std::string& proc_root) {
  const std::string path = absl::StrCat(proc_root, "/sys/kernel/random/boot_id");
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  char buffer[64];
  const ssize_t got = read(fd, buffer, sizeof(buffer));
  const int error = errno;
  close(fd);
  if (got < 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot read ", path));
  const absl::string_view text =
      absl::StripAsciiWhitespace(absl::string_view(buffer, static_cast<size_t>(got)));
  if (!IsBootId(text)) return absl::InternalError(absl::StrCat(path, " holds no boot id"));
  return std::string(text);
}

}  // namespace xenprof::xen
