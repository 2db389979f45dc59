// Bytes read once from the front, plain or compressed, and the lines in them.
#ifndef XENPROF_SYMBOLS_BYTE_STREAM_H_
#define XENPROF_SYMBOLS_BYTE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "xenprof/symbols/byte_source.h"
#include "xenprof/symbols/unique_fd.h"

namespace xenprof::symbols {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Bytes read, 0 at the end. DataLoss for broken compressed data, ResourceExhausted for more than the
  // stream's limit.
  virtual absl::StatusOr<size_t> Read(char* out, size_t size) = 0;
};

// Of a file, pipe or /proc file. What starts like xz or gzip is decompressed on the fly; more than
// `max_bytes` after decompression is an error. `name` is for messages.
absl::StatusOr<std::unique_ptr<ByteStream>> StreamOfFd(UniqueFd fd, uint64_t max_bytes, std::string name);
absl::StatusOr<std::unique_ptr<ByteStream>> StreamOfFile(const std::string& path, uint64_t max_bytes);
// Of [offset, offset + size) of a source.
absl::StatusOr<std::unique_ptr<ByteStream>> StreamOfSource(std::shared_ptr<const ByteSource> source,
                                                           uint64_t offset, uint64_t size, uint64_t max_bytes,
                                                           std::string name);

// All that is left of a stream; it already has a limit.
absl::StatusOr<std::string> ReadAll(ByteStream& stream);

// A regular file for random access: as it is, or its decompressed bytes in memory (`max_bytes` at most).
absl::StatusOr<std::shared_ptr<const ByteSource>> SourceOfMaybeCompressed(const std::string& path,
                                                                          uint64_t max_bytes);

class LineReader {
 public:
  explicit LineReader(ByteStream* stream);

  // The next line without its end; false at the end of the stream or after an error. Valid until the next
  // call. A line longer than the buffer (64 KiB) is cut, its rest skipped.
  bool Next(absl::string_view* line);

  const absl::Status& status() const { return status_; }

 private:
  bool Fill();

  ByteStream* stream_;
  std::vector<char> buffer_;
  std::string cut_;
  size_t begin_ = 0, end_ = 0;
  bool eof_ = false;
  absl::Status status_;
};

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_BYTE_STREAM_H_
