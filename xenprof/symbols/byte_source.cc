#include "xenprof/symbols/byte_source.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace xenprof::symbols {
namespace {

class FdSource : public ByteSource {
 public:
  FdSource(UniqueFd fd, const struct stat& status)
      : fd_(std::move(fd)),
        size_(status.st_size),
        identity_(absl::StrCat(status.st_dev, ":", status.st_ino, ":", status.st_mtim.tv_sec, ".",
                               status.st_mtim.tv_nsec)) {}

  uint64_t Size() const override { return size_; }
  std::string Identity() const override { return identity_; }

  size_t ReadAt(uint64_t offset, void* out, size_t size) const override {
    if (offset >= size_) return 0;
    size = std::min<uint64_t>(size, size_ - offset);
    size_t done = 0;
    while (done < size) {
      const ssize_t got = pread(fd_.get(), static_cast<char*>(out) + done, size - done, offset + done);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      done += got;
    }
    return done;
  }

 private:
  UniqueFd fd_;
  uint64_t size_;
  std::string identity_;
};

class StringSource : public ByteSource {
 public:
  explicit StringSource(std::string bytes) : bytes_(std::move(bytes)) {}

  uint64_t Size() const override { return bytes_.size(); }

  size_t ReadAt(uint64_t offset, void* out, size_t size) const override {
    if (offset >= bytes_.size()) return 0;
    size = std::min<uint64_t>(size, bytes_.size() - offset);
    std::memcpy(out, bytes_.data() + offset, size);
    return size;
  }

 private:
  std::string bytes_;
};

}  // namespace

absl::StatusOr<std::string> ByteSource::ReadString(uint64_t offset, uint64_t size, uint64_t max_size) const {
  if (size > max_size) {
    return absl::OutOfRangeError(absl::StrCat(size, " bytes at offset ", offset, " are more than the ",
                                              max_size, " that are plausible"));
  }
  if (offset > Size() || size > Size() - offset) {
    return absl::OutOfRangeError(
        absl::StrCat(size, " bytes at offset ", offset, " lie outside of a file of ", Size(), " bytes"));
  }
  std::string bytes(size, '\0');
  if (ReadAt(offset, bytes.data(), size) != size) {
    return absl::OutOfRangeError(absl::StrCat(size, " bytes at offset ", offset,
                                              " could not be read: the file shrank or an I/O error"));
  }
  return bytes;
}

std::string ByteSource::ReadCString(uint64_t offset, size_t max_size) const {
  std::string text;
  char block[128];
  while (text.size() < max_size) {
    const size_t got = ReadAt(offset + text.size(), block, std::min(sizeof(block), max_size - text.size()));
    if (got == 0) break;
    const void* end = std::memchr(block, '\0', got);
    if (end != nullptr) {
      text.append(block, static_cast<const char*>(end) - block);
      break;
    }
    text.append(block, got);
  }
  return text;
}

absl::StatusOr<std::shared_ptr<const ByteSource>> FileByteSource(UniqueFd fd, absl::string_view name) {
  struct stat status;
  if (fstat(fd.get(), &status) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(name, ": cannot be examined"));
  }
  if (!S_ISREG(status.st_mode)) return absl::InvalidArgumentError(absl::StrCat(name, ": not a regular file"));
  return std::make_shared<FdSource>(std::move(fd), status);
}

std::shared_ptr<const ByteSource> MemoryByteSource(std::string bytes) {
  return std::make_shared<StringSource>(std::move(bytes));
}

}  // namespace xenprof::symbols
