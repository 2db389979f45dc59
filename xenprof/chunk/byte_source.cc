#include "xenprof/chunk/byte_source.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xenprof/chunk/partial_file.h"

namespace xenprof::chunk {
namespace {

constexpr size_t kMaxPipeBytes = size_t{1} << 30;

class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::string bytes) : bytes_(std::move(bytes)) {}
  uint64_t size() const override { return bytes_.size(); }
  absl::StatusOr<absl::Span<const uint8_t>> Read(uint64_t offset, uint64_t count) override {
    const absl::Span<const uint8_t> all(reinterpret_cast<const uint8_t*>(bytes_.data()), bytes_.size());
    if (offset >= all.size()) return absl::Span<const uint8_t>();
    return all.subspan(offset, count);
  }

 private:
  std::string bytes_;
};

// The size is taken once: what a live writer appends later is not seen.
class FileSource : public ByteSource {
 public:
  FileSource(UniqueFd fd, std::string name, uint64_t size)
      : fd_(std::move(fd)), name_(std::move(name)), size_(size) {}
  uint64_t size() const override { return size_; }
  absl::StatusOr<absl::Span<const uint8_t>> Read(uint64_t offset, uint64_t count) override {
    if (offset >= size_) return absl::Span<const uint8_t>();
    count = std::min(count, size_ - offset);
    if (buffer_.size() < count) buffer_.resize(count);
    uint64_t got = 0;
    while (got < count) {
      const ssize_t bytes =
          pread(fd_.get(), buffer_.data() + got, count - got, static_cast<off_t>(offset + got));
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes < 0) return FileError(name_, absl::StrCat("read at offset ", offset + got), errno);
      if (bytes == 0) break;  // cut meanwhile
      got += static_cast<uint64_t>(bytes);
    }
    return absl::MakeConstSpan(buffer_).first(got);
  }

 private:
  UniqueFd fd_;
  std::string name_;
  uint64_t size_;
  std::vector<uint8_t> buffer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> ByteSource::FromDescriptor(UniqueFd fd, const std::string& name) {
  struct stat status;
  if (fstat(fd.get(), &status) != 0) return FileError(name, "look at", errno);
  if (S_ISREG(status.st_mode)) {
    return std::make_unique<FileSource>(std::move(fd), name, static_cast<uint64_t>(status.st_size));
  }
  if (S_ISDIR(status.st_mode)) return FileError(name, "read", EISDIR);
  std::string bytes;
  while (true) {
    const size_t before = bytes.size();
    bytes.resize(before + (size_t{1} << 16));
    const ssize_t got = read(fd.get(), bytes.data() + before, bytes.size() - before);
    bytes.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(name, "read", errno);
    if (got == 0) return FromBytes(std::move(bytes));
    if (bytes.size() > kMaxPipeBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(name, ": more than ", kMaxPipeBytes, " bytes from a pipe"));
    }
  }
}

std::unique_ptr<ByteSource> ByteSource::FromBytes(std::string bytes) {
  return std::make_unique<MemorySource>(std::move(bytes));
}

}  // namespace xenprof::chunk
