#include "xenprof/symbols/byte_stream.h"

#include <fcntl.h>
#include <lzma.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace xenprof::symbols {
namespace {

constexpr size_t kInputBlockBytes = 64 << 10;
constexpr size_t kLineBufferBytes = 64 << 10;
// xz -9 needs 65 MiB to decompress; minidebuginfo uses -6 and less (9 MiB).
constexpr uint64_t kXzMemoryLimitBytes = 80 << 20;

class FdStream : public ByteStream {
 public:
  FdStream(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    while (true) {
      const ssize_t got = read(fd_.get(), out, size);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) return absl::ErrnoToStatus(errno, absl::StrCat(name_, ": read"));
    }
  }

 private:
  UniqueFd fd_;
  std::string name_;
};

class SourceStream : public ByteStream {
 public:
  SourceStream(std::shared_ptr<const ByteSource> source, uint64_t offset, uint64_t size)
      : source_(std::move(source)), offset_(offset), left_(size) {}

  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    const size_t got = source_->ReadAt(offset_, out, std::min<uint64_t>(size, left_));
    offset_ += got;
    left_ -= got;
    return got;
  }

 private:
  std::shared_ptr<const ByteSource> source_;
  uint64_t offset_, left_;
};

// Puts bytes already read in front again, and holds the limit.
class LimitedStream : public ByteStream {
 public:
  LimitedStream(std::string front, std::unique_ptr<ByteStream> rest, uint64_t max_bytes, std::string name)
      : front_(std::move(front)), rest_(std::move(rest)), left_(max_bytes), name_(std::move(name)) {}

  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    size_t got = 0;
    if (front_used_ < front_.size()) {
      got = std::min(size, front_.size() - front_used_);
      std::memcpy(out, front_.data() + front_used_, got);
      front_used_ += got;
    } else {
      absl::StatusOr<size_t> more = rest_->Read(out, size);
      if (!more.ok()) return more;
      got = *more;
    }
    if (got > left_) {
      return absl::ResourceExhaustedError(absl::StrCat(name_, ": larger than the limit for such a file"));
    }
    left_ -= got;
    return got;
  }

 private:
  std::string front_;
  size_t front_used_ = 0;
  std::unique_ptr<ByteStream> rest_;
  uint64_t left_;
  std::string name_;
};

class XzStream : public ByteStream {
 public:
  XzStream(std::unique_ptr<ByteStream> input, std::string name)
      : input_(std::move(input)), name_(std::move(name)), buffer_(kInputBlockBytes) {
    init_ = lzma_stream_decoder(&decoder_, kXzMemoryLimitBytes, LZMA_CONCATENATED);
  }
  ~XzStream() override { lzma_end(&decoder_); }

  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    if (init_ != LZMA_OK) return absl::ResourceExhaustedError(absl::StrCat(name_, ": no memory for liblzma"));
    decoder_.next_out = reinterpret_cast<uint8_t*>(out);
    decoder_.avail_out = size;
    while (decoder_.avail_out == size && !ended_) {
      if (decoder_.avail_in == 0 && !input_ended_) {
        absl::StatusOr<size_t> got = input_->Read(buffer_.data(), buffer_.size());
        if (!got.ok()) return got;
        input_ended_ = *got == 0;
        decoder_.next_in = reinterpret_cast<uint8_t*>(buffer_.data());
        decoder_.avail_in = *got;
      }
      const lzma_ret result = lzma_code(&decoder_, input_ended_ ? LZMA_FINISH : LZMA_RUN);
      if (result == LZMA_STREAM_END) {
        ended_ = true;
      } else if (result == LZMA_MEMLIMIT_ERROR) {
        return absl::ResourceExhaustedError(
            absl::StrCat(name_, ": xz data needs too much memory to decompress"));
      } else if (result != LZMA_OK) {
        return absl::DataLossError(
            absl::StrCat(name_, ": damaged xz data (liblzma error ", static_cast<int>(result), ")"));
      }
    }
    return size - decoder_.avail_out;
  }

 private:
  std::unique_ptr<ByteStream> input_;
  std::string name_;
  std::vector<char> buffer_;
  lzma_stream decoder_ = LZMA_STREAM_INIT;
  lzma_ret init_;
  bool input_ended_ = false, ended_ = false;
};

class GzipStream : public ByteStream {
 public:
  GzipStream(std::unique_ptr<ByteStream> input, std::string name)
      : input_(std::move(input)), name_(std::move(name)), buffer_(kInputBlockBytes) {
    init_ = inflateInit2(&decoder_, 16 + MAX_WBITS);  // 16: gzip framing, zlib.h
  }
  ~GzipStream() override {
    if (init_ == Z_OK) inflateEnd(&decoder_);
  }

  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    if (init_ != Z_OK) return absl::ResourceExhaustedError(absl::StrCat(name_, ": no memory for zlib"));
    decoder_.next_out = reinterpret_cast<Bytef*>(out);
    decoder_.avail_out = size;
    while (decoder_.avail_out == size && !ended_) {
      if (decoder_.avail_in == 0) {
        absl::StatusOr<size_t> got = input_->Read(buffer_.data(), buffer_.size());
        if (!got.ok()) return got;
        if (*got == 0) return absl::DataLossError(absl::StrCat(name_, ": gzip data ends early"));
        decoder_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
        decoder_.avail_in = *got;
      }
      const int result = inflate(&decoder_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        ended_ = true;
      } else if (result != Z_OK) {
        return absl::DataLossError(absl::StrCat(name_, ": damaged gzip data (zlib error ", result, ")"));
      }
    }
    return size - decoder_.avail_out;
  }

 private:
  std::unique_ptr<ByteStream> input_;
  std::string name_;
  std::vector<char> buffer_;
  z_stream decoder_ = {};
  int init_;
  bool ended_ = false;
};

bool IsXz(absl::string_view front) {
  return front.substr(0, 6) == absl::string_view(
                                   "\xFD"
                                   "7zXZ\0",
                                   6);
}
bool IsGzip(absl::string_view front) { return front.substr(0, 2) == "\x1f\x8b"; }

absl::StatusOr<std::unique_ptr<ByteStream>> Detect(std::unique_ptr<ByteStream> raw, uint64_t max_bytes,
                                                   std::string name) {
  std::string front(6, '\0');
  size_t have = 0;
  while (have < front.size()) {
    absl::StatusOr<size_t> got = raw->Read(front.data() + have, front.size() - have);
    if (!got.ok()) return got.status();
    if (*got == 0) break;
    have += *got;
  }
  front.resize(have);
  const bool xz = IsXz(front), gzip = IsGzip(front);
  // Compressed input cannot usefully be larger than what may come out of it.
  auto whole = std::make_unique<LimitedStream>(std::move(front), std::move(raw), max_bytes, name);
  if (!xz && !gzip) return std::unique_ptr<ByteStream>(std::move(whole));
  std::unique_ptr<ByteStream> plain;
  if (xz) {
    plain = std::make_unique<XzStream>(std::move(whole), name);
  } else {
    plain = std::make_unique<GzipStream>(std::move(whole), name);
  }
  return std::unique_ptr<ByteStream>(
      std::make_unique<LimitedStream>("", std::move(plain), max_bytes, std::move(name)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ByteStream>> StreamOfFd(UniqueFd fd, uint64_t max_bytes, std::string name) {
  return Detect(std::make_unique<FdStream>(std::move(fd), name), max_bytes, name);
}

absl::StatusOr<std::unique_ptr<ByteStream>> StreamOfFile(const std::string& path, uint64_t max_bytes) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, path);
  return StreamOfFd(std::move(fd), max_bytes, path);
}

absl::StatusOr<std::unique_ptr<ByteStream>> StreamOfSource(std::shared_ptr<const ByteSource> source,
                                                           uint64_t offset, uint64_t size, uint64_t max_bytes,
                                                           std::string name) {
  return Detect(std::make_unique<SourceStream>(std::move(source), offset, size), max_bytes, std::move(name));
}

absl::StatusOr<std::string> ReadAll(ByteStream& stream) {
  std::string all;
  // Most are notes of a few bytes.
  constexpr size_t kFirstStep = 4 << 10, kLargestStep = 256 << 10;
  while (true) {
    const size_t had = all.size();
    const size_t step = std::clamp(had, kFirstStep, kLargestStep);
    all.resize(had + step);
    absl::StatusOr<size_t> got = stream.Read(all.data() + had, step);
    if (!got.ok()) return got.status();
    all.resize(had + *got);
    if (*got == 0) return all;
  }
}

absl::StatusOr<std::shared_ptr<const ByteSource>> SourceOfMaybeCompressed(const std::string& path,
                                                                          uint64_t max_bytes) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, path);
  absl::StatusOr<std::shared_ptr<const ByteSource>> file = FileByteSource(std::move(fd), path);
  if (!file.ok()) return file;
  char front[6] = {};
  const size_t have = (*file)->ReadAt(0, front, sizeof(front));
  if (!IsXz({front, have}) && !IsGzip({front, have})) return file;
  absl::StatusOr<std::unique_ptr<ByteStream>> stream =
      StreamOfSource(*file, 0, (*file)->Size(), max_bytes, path);
  if (!stream.ok()) return stream.status();
  absl::StatusOr<std::string> bytes = ReadAll(**stream);
  if (!bytes.ok()) return bytes.status();
  return MemoryByteSource(*std::move(bytes));
}

LineReader::LineReader(ByteStream* stream) : stream_(stream), buffer_(kLineBufferBytes) {}

bool LineReader::Fill() {
  if (eof_) return false;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) return false;
  absl::StatusOr<size_t> got = stream_->Read(buffer_.data() + end_, buffer_.size() - end_);
  if (!got.ok()) status_ = got.status();
  if (!got.ok() || *got == 0) {
    eof_ = true;
    return false;
  }
  end_ += *got;
  return true;
}

bool LineReader::Next(absl::string_view* line) {
  size_t searched = 0;
  while (true) {
    const char* data = buffer_.data() + begin_;
    const void* newline = std::memchr(data + searched, '\n', end_ - begin_ - searched);
    if (newline != nullptr) {
      *line = absl::string_view(data, static_cast<const char*>(newline) - data);
      begin_ += line->size() + 1;
      return true;
    }
    searched = end_ - begin_;
    if (Fill()) continue;
    if (searched == 0) return false;
    if (eof_) {  // the last line may lack its end
      *line = absl::string_view(buffer_.data() + begin_, searched);
      begin_ = end_;
      return status_.ok();
    }
    // Longer than the buffer: hand out what fits into half, skip to the line's end.
    cut_.assign(buffer_.data() + begin_, searched / 2);
    begin_ = end_;
    while (true) {
      if (begin_ == end_ && !Fill()) break;
      const void* rest_end = std::memchr(buffer_.data() + begin_, '\n', end_ - begin_);
      if (rest_end != nullptr) {
        begin_ = static_cast<const char*>(rest_end) - buffer_.data() + 1;
        break;
      }
      begin_ = end_;
    }
    *line = cut_;
    return true;
  }
}

}  // namespace xenprof::symbols
