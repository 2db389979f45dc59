#include "xenprof/symbols/byte_source.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

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
    if (size > kSmallBytes) return ReadFile(offset, out, size);
    size_t done = 0;
    absl::MutexLock lock(&mutex_);
    while (done < size) {
      const Block& block = BlockWith(offset + done);
      const size_t within = (offset + done) % kBlockBytes;
      if (within >= block.filled) break;
      const size_t taken = std::min(size - done, block.filled - within);
      std::memcpy(static_cast<char*>(out) + done, block.bytes.get() + within, taken);
      done += taken;
    }
    return done;
  }

 private:
  // Headers and names are read a few bytes at a time, each near one read before: a call to the system costs
  // more than what it fetches.
  static constexpr size_t kSmallBytes = 256, kBlockBytes = 4096, kBlocks = 16;
  struct Block {
    uint64_t number = 0;
    size_t filled = 0;  // 0: holds nothing
    std::unique_ptr<char[]> bytes;
  };

  size_t ReadFile(uint64_t offset, void* out, size_t size) const {
    size_t done = 0;
    while (done < size) {
      const ssize_t got = pread(fd_.get(), static_cast<char*>(out) + done, size - done, offset + done);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      done += got;
    }
    return done;
  }

  const Block& BlockWith(uint64_t offset) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const uint64_t number = offset / kBlockBytes;
    Block& block = blocks_[number % kBlocks];
    if (block.number != number || block.filled <= offset % kBlockBytes) {
      if (block.bytes == nullptr) block.bytes = std::make_unique_for_overwrite<char[]>(kBlockBytes);
      block.number = number;
      const uint64_t begin = number * kBlockBytes;
      block.filled = ReadFile(begin, block.bytes.get(), std::min<uint64_t>(kBlockBytes, size_ - begin));
    }
    return block;
  }

  UniqueFd fd_;
  uint64_t size_;
  std::string identity_;
  mutable absl::Mutex mutex_;
  mutable std::array<Block, kBlocks> blocks_ ABSL_GUARDED_BY(mutex_);
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
