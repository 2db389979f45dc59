// The bytes of a perf.data file for random access, whatever it comes in.
#ifndef XENPROF_PERF_PERF_DATA_INPUT_H_
#define XENPROF_PERF_PERF_DATA_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace xenprof::perf {

// The window a zstd decoder may take, 128 MiB: that of `zstd --long`.
inline constexpr int kZstdWindowLog = 27;

// An open regular file. Owns the descriptor.
class PerfDataInput {
 public:
  PerfDataInput() = default;
  PerfDataInput(int fd, uint64_t size, int64_t modified) : fd_(fd), size_(size), modified_(modified) {}
  ~PerfDataInput();
  PerfDataInput(PerfDataInput&& other) noexcept;
  PerfDataInput& operator=(PerfDataInput&& other) noexcept;

  uint64_t size() const { return size_; }
  int64_t modified_unix_seconds() const { return modified_; }
  // Bytes read at `offset`: fewer than `size` only at the end of the file.
  absl::StatusOr<size_t> ReadAt(uint64_t offset, void* out, size_t size) const;

 private:
  int fd_ = -1;
  uint64_t size_ = 0;
  int64_t modified_ = 0;
};

// Takes `fd` over. What is no regular file, or starts like xz, gzip or zstd, is first copied (unpacked) to an
// unnamed file in `temporary_folder`, `max_bytes` at most. Errors name `name`.
absl::StatusOr<PerfDataInput> MakeInput(int fd, const std::string& name, const std::string& temporary_folder,
                                        uint64_t max_bytes);

}  // namespace xenprof::perf

#endif  // XENPROF_PERF_PERF_DATA_INPUT_H_
