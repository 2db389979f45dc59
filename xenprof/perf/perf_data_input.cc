#include "xenprof/perf/perf_data_input.h"

#include <fcntl.h>
#include <lzma.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace xenprof::perf {
namespace {

constexpr size_t kCopyBytes = size_t{256} << 10;
// A decoder may take this much: `xz -9` needs 64 MiB.
constexpr uint64_t kDecoderMemory = uint64_t{256} << 20;

enum class Packing { kPlain, kXz, kGzip, kZstd };

Packing PackingOf(const uint8_t* bytes, size_t size) {
  static constexpr uint8_t kXzMagic[] = {0xfd, '7', 'z', 'X', 'Z', 0};
  static constexpr uint8_t kGzipMagic[] = {0x1f, 0x8b, 8};
  static constexpr uint8_t kZstdMagic[] = {0x28, 0xb5, 0x2f, 0xfd};
  const auto starts_with = [&](const uint8_t* magic, size_t length) {
    return size >= length && std::memcmp(bytes, magic, length) == 0;
  };
  if (starts_with(kXzMagic, sizeof kXzMagic)) return Packing::kXz;
  if (starts_with(kGzipMagic, sizeof kGzipMagic)) return Packing::kGzip;
  if (starts_with(kZstdMagic, sizeof kZstdMagic)) return Packing::kZstd;
  return Packing::kPlain;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// The copy being made.
class Spool {
 public:
  Spool(int fd, const std::string& name, const std::string& folder, uint64_t max_bytes)
      : fd_(fd), name_(name), folder_(folder), max_bytes_(max_bytes) {}

  absl::Status Write(const uint8_t* bytes, size_t size) {
    if (size > max_bytes_ - written_) {
      return absl::ResourceExhaustedError(
          absl::StrCat(name_, ": unpacks to more than ", max_bytes_, " bytes"));
    }
    while (size > 0) {
      const ssize_t wrote = write(fd_, bytes, size);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) return absl::ErrnoToStatus(errno, absl::StrCat(name_, ": copying it to ", folder_));
      bytes += wrote;
      size -= static_cast<size_t>(wrote);
      written_ += static_cast<uint64_t>(wrote);
    }
    return absl::OkStatus();
  }
  uint64_t written() const { return written_; }

 private:
  int fd_;
  const std::string& name_;
  const std::string& folder_;
  uint64_t max_bytes_;
  uint64_t written_ = 0;
};

// Where packed bytes come from: what was read to recognise the packing, then the rest.
class Source {
 public:
  Source(int fd, const std::string& name, std::vector<uint8_t> first)
      : fd_(fd), name_(name), buffer_(std::move(first)), end_(buffer_.size()) {
    buffer_.resize(kCopyBytes);
  }

  // Sets `size` to 0 at the end.
  absl::Status Next(const uint8_t** bytes, size_t* size) {
    if (end_ == 0) {
      ssize_t got;
      do {
        got = read(fd_, buffer_.data(), buffer_.size());
      } while (got < 0 && errno == EINTR);
      if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat(name_, ": reading"));
      end_ = static_cast<size_t>(got);
    }
    *bytes = buffer_.data();
    *size = end_;
    consumed_ += end_;
    end_ = 0;
    return absl::OkStatus();
  }
  uint64_t consumed() const { return consumed_; }

 private:
  int fd_;
  const std::string& name_;
  std::vector<uint8_t> buffer_;
  size_t end_;
  uint64_t consumed_ = 0;
};

absl::Status Broken(const std::string& name, const Source& source, absl::string_view format,
                    absl::string_view reason) {
  return absl::DataLossError(
      absl::StrCat(name, ": offset ", source.consumed(), " or before: ", format, " data: ", reason));
}

absl::Status CopyPlain(const std::string&, Source& source, Spool& spool) {
  while (true) {
    const uint8_t* bytes = nullptr;
    size_t size = 0;
    if (absl::Status status = source.Next(&bytes, &size); !status.ok()) return status;
    if (size == 0) return absl::OkStatus();
    if (absl::Status status = spool.Write(bytes, size); !status.ok()) return status;
  }
}

absl::Status UnpackXz(const std::string& name, Source& source, Spool& spool) {
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, kDecoderMemory, LZMA_CONCATENATED) != LZMA_OK) {
    return absl::ResourceExhaustedError(absl::StrCat(name, ": no memory for an xz decoder"));
  }
  const std::unique_ptr<lzma_stream, void (*)(lzma_stream*)> end(&stream, lzma_end);
  std::vector<uint8_t> out(kCopyBytes);
  lzma_action action = LZMA_RUN;
  while (true) {
    if (stream.avail_in == 0 && action == LZMA_RUN) {
      size_t size = 0;
      if (absl::Status status = source.Next(&stream.next_in, &size); !status.ok()) return status;
      stream.avail_in = size;
      if (size == 0) action = LZMA_FINISH;
    }
    stream.next_out = out.data();
    stream.avail_out = out.size();
    const lzma_ret result = lzma_code(&stream, action);
    if (absl::Status status = spool.Write(out.data(), out.size() - stream.avail_out); !status.ok())
      return status;
    if (result == LZMA_STREAM_END) return absl::OkStatus();
    if (result == LZMA_MEMLIMIT_ERROR) return Broken(name, source, "xz", "needs more than 256 MiB to unpack");
    if (result == LZMA_BUF_ERROR) return Broken(name, source, "xz", "ends too early");
    if (result != LZMA_OK) return Broken(name, source, "xz", "is damaged");
  }
}

absl::Status UnpackGzip(const std::string& name, Source& source, Spool& spool) {
  z_stream stream = {};
  if (inflateInit2(&stream, 15 + 16 /* gzip header */) != Z_OK) {
    return absl::ResourceExhaustedError(absl::StrCat(name, ": no memory for a gzip decoder"));
  }
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  std::vector<uint8_t> out(kCopyBytes);
  bool in_member = true;
  while (true) {
    if (stream.avail_in == 0) {
      const uint8_t* bytes = nullptr;
      size_t size = 0;
      if (absl::Status status = source.Next(&bytes, &size); !status.ok()) return status;
      if (size == 0) return in_member ? Broken(name, source, "gzip", "ends too early") : absl::OkStatus();
      stream.next_in = const_cast<Bytef*>(bytes);
      stream.avail_in = static_cast<uInt>(size);
    }
    if (!in_member) {  // gzip files may be concatenated
      if (inflateReset(&stream) != Z_OK) return Broken(name, source, "gzip", "is damaged");
      in_member = true;
    }
    stream.next_out = out.data();
    stream.avail_out = static_cast<uInt>(out.size());
    const int result = inflate(&stream, Z_NO_FLUSH);
    if (absl::Status status = spool.Write(out.data(), out.size() - stream.avail_out); !status.ok())
      return status;
    if (result == Z_STREAM_END) {
      in_member = false;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      return Broken(name, source, "gzip", "is damaged");
    }
  }
}

absl::Status UnpackZstd(const std::string& name, Source& source, Spool& spool) {
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  if (context == nullptr)
    return absl::ResourceExhaustedError(absl::StrCat(name, ": no memory for a zstd decoder"));
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kZstdWindowLog);
  std::vector<uint8_t> out(kCopyBytes);
  size_t expected = 1;
  while (true) {
    const uint8_t* bytes = nullptr;
    size_t size = 0;
    if (absl::Status status = source.Next(&bytes, &size); !status.ok()) return status;
    if (size == 0) return expected == 0 ? absl::OkStatus() : Broken(name, source, "zstd", "ends too early");
    ZSTD_inBuffer in = {bytes, size, 0};
    bool more = true;
    while (more) {
      ZSTD_outBuffer buffer = {out.data(), out.size(), 0};
      expected = ZSTD_decompressStream(context.get(), &buffer, &in);
      if (ZSTD_isError(expected)) return Broken(name, source, "zstd", ZSTD_getErrorName(expected));
      if (absl::Status status = spool.Write(out.data(), buffer.pos); !status.ok()) return status;
      more = in.pos < in.size || (expected != 0 && buffer.pos == buffer.size);
    }
  }
}

absl::StatusOr<int> UnnamedFile(const std::string& folder) {
  int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  // Not every file system has unnamed files.
  std::string path = absl::StrCat(folder, "/xenprof-import-XXXXXX");
  fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(folder, ": making a temporary file"));
  unlink(path.c_str());
  return fd;
}

std::string TemporaryFolder(const std::string& wanted) {
  if (!wanted.empty()) return wanted;
  const char* folder = std::getenv("TMPDIR");
  return folder != nullptr && *folder != '\0' ? folder : "/var/tmp";
}

}  // namespace

PerfDataInput::~PerfDataInput() {
  if (fd_ >= 0) close(fd_);
}

PerfDataInput::PerfDataInput(PerfDataInput&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), size_(other.size_), modified_(other.modified_) {}

PerfDataInput& PerfDataInput::operator=(PerfDataInput&& other) noexcept {
  std::swap(fd_, other.fd_);
  size_ = other.size_;
  modified_ = other.modified_;
  return *this;
}

absl::StatusOr<size_t> PerfDataInput::ReadAt(uint64_t offset, void* out, size_t size) const {
  if (offset >= size_) return 0;
  size_t done = 0;
  while (done < size) {
    const ssize_t got =
        pread(fd_, static_cast<char*>(out) + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat("offset ", offset + done, ": reading"));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

absl::StatusOr<PerfDataInput> MakeInput(int raw_fd, const std::string& name,
                                        const std::string& temporary_folder, uint64_t max_bytes) {
  Descriptor fd(raw_fd);
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return absl::ErrnoToStatus(errno, name);
  if (S_ISDIR(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(name, ": is a folder"));
  const bool regular = S_ISREG(info.st_mode);

  std::vector<uint8_t> first(16);
  size_t have = 0;
  while (have < first.size()) {
    const ssize_t got =
        regular ? pread(fd.get(), first.data() + have, first.size() - have, static_cast<off_t>(have))
                : read(fd.get(), first.data() + have, first.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat(name, ": reading"));
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  first.resize(have);
  const Packing packing = PackingOf(first.data(), first.size());
  const int64_t modified = regular ? info.st_mtime : 0;
  if (regular && packing == Packing::kPlain) {
    return PerfDataInput(fd.Release(), static_cast<uint64_t>(info.st_size), modified);
  }

  if (regular) {
    // The source reads on behind what was looked at.
    if (lseek(fd.get(), static_cast<off_t>(have), SEEK_SET) < 0) return absl::ErrnoToStatus(errno, name);
  }
  const std::string folder = TemporaryFolder(temporary_folder);
  absl::StatusOr<int> copy = UnnamedFile(folder);
  if (!copy.ok()) return copy.status();
  Descriptor copy_fd(*copy);
  Source source(fd.get(), name, std::move(first));
  Spool spool(copy_fd.get(), name, folder, max_bytes);
  absl::Status status;
  switch (packing) {
    case Packing::kPlain:
      status = CopyPlain(name, source, spool);
      break;
    case Packing::kXz:
      status = UnpackXz(name, source, spool);
      break;
    case Packing::kGzip:
      status = UnpackGzip(name, source, spool);
      break;
    case Packing::kZstd:
      status = UnpackZstd(name, source, spool);
      break;
  }
  if (!status.ok()) return status;
  return PerfDataInput(copy_fd.Release(), spool.written(), modified);
}

}  // namespace xenprof::perf
