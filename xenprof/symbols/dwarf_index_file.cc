// Indexes on disk.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "xenprof/symbols/dwarf_index.h"
#include "xenprof/symbols/unique_fd.h"

namespace xenprof::symbols {
namespace {

constexpr int64_t kMaxIndexBytes = int64_t{1} << 32;

}  // namespace

absl::StatusOr<std::unique_ptr<DwarfIndex>> DwarfIndex::FromFile(const std::string& path,
                                                                 absl::string_view build_id) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, path);
  struct stat status;
  if (fstat(fd.get(), &status) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(path, ": not a file that only this user can write"));
  }
  if (status.st_size <= 0 || status.st_size > kMaxIndexBytes) {
    return absl::DataLossError(absl::StrCat(path, ": a size of ", status.st_size, " bytes makes no sense"));
  }
  std::unique_ptr<DwarfIndex> index(new DwarfIndex);
  void* mapped = mmap(nullptr, status.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd.get(), 0);
  if (mapped == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": mmap"));
  index->mapped_ = mapped;
  index->mapped_size_ = status.st_size;
  index->bytes_ = absl::string_view(static_cast<const char*>(mapped), status.st_size);
  const absl::Status checked = index->Check(build_id);
  if (!checked.ok()) return absl::Status(checked.code(), absl::StrCat(path, ": ", checked.message()));
  return index;
}

absl::Status DwarfIndex::WriteTo(const std::string& path) const {
  std::string temporary = path + ".XXXXXX";
  const UniqueFd fd(mkostemp(temporary.data(), O_CLOEXEC));  // mode 0600
  if (!fd.valid()) return absl::ErrnoToStatus(errno, temporary);
  absl::Status status;
  for (size_t done = 0; done < bytes_.size() && status.ok();) {
    const ssize_t wrote = write(fd.get(), bytes_.data() + done, bytes_.size() - done);
    if (wrote > 0) {
      done += wrote;
    } else if (wrote == 0 || errno != EINTR) {
      status = absl::ErrnoToStatus(errno, absl::StrCat(temporary, ": write"));
    }
  }
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) status = absl::ErrnoToStatus(errno, path);
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

std::string DwarfIndexPath(absl::string_view folder, absl::string_view build_id) {
  return absl::StrCat(folder, "/", absl::BytesToHexString(build_id), ".xdi");
}

absl::StatusOr<std::unique_ptr<DwarfIndex>> OpenDwarfIndex(const ElfFile& file, const std::string& folder,
                                                           bool* from_folder) {
  *from_folder = false;
  const bool keeps = !folder.empty() && !file.build_id().empty();
  const std::string path = keeps ? DwarfIndexPath(folder, file.build_id()) : "";
  if (keeps) {
    absl::StatusOr<std::unique_ptr<DwarfIndex>> kept = DwarfIndex::FromFile(path, file.build_id());
    if (kept.ok()) {
      *from_folder = true;
      return kept;
    }
  }
  absl::StatusOr<std::unique_ptr<DwarfIndex>> built = DwarfIndex::Build(file);
  // An index that cannot be kept is built again the next time.
  if (built.ok() && keeps) (void)(*built)->WriteTo(path);
  return built;
}

}  // namespace xenprof::symbols
