// Random access to bytes that may lie about their length.
//
// Files are read with pread into the caller's buffer and never mapped: a file that somebody truncates while
// it is being read gives a short read here, where a mapping would give SIGBUS. It also keeps the memory of
// the daemon flat whatever the size of the file.
#ifndef XENPROF_SYMBOLS_BYTE_SOURCE_H_
#define XENPROF_SYMBOLS_BYTE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "xenprof/symbols/unique_fd.h"

namespace xenprof::symbols {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Bytes, as known when the source was made.
  virtual uint64_t Size() const = 0;

  // Tells one file, and one state of it, from another: device, inode, time of the last change. Empty for
  // memory.
  virtual std::string Identity() const { return ""; }

  // Bytes read; fewer than `size` at the end, after an I/O error, or when the file shrank.
  virtual size_t ReadAt(uint64_t offset, void* out, size_t size) const = 0;

  bool ReadExactly(uint64_t offset, void* out, size_t size) const {
    return offset <= Size() && size <= Size() - offset && ReadAt(offset, out, size) == size;
  }

  // [offset, offset + size) as a string. OutOfRange if it is not all there or more than `max_size`.
  absl::StatusOr<std::string> ReadString(uint64_t offset, uint64_t size, uint64_t max_size) const;

  // The zero-terminated string at `offset`, without the zero; cut at `max_size`. Empty outside of the source.
  std::string ReadCString(uint64_t offset, size_t max_size) const;
};

// Takes the descriptor. InvalidArgument unless it is a regular file.
absl::StatusOr<std::shared_ptr<const ByteSource>> FileByteSource(UniqueFd fd, absl::string_view name);

std::shared_ptr<const ByteSource> MemoryByteSource(std::string bytes);

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_BYTE_SOURCE_H_
