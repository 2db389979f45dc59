// Frames of the control socket (proto/control.proto): a 4-byte little-endian length, that many bytes, and
// perhaps descriptors (SCM_RIGHTS) that travel with the frame's first byte.
#ifndef XENPROF_BASE_FRAMING_H_
#define XENPROF_BASE_FRAMING_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace xenprof {

// A descriptor that is closed with its owner.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// Without the length word.
inline constexpr size_t kMaxFrameBytes = size_t{1} << 20;
// The kernel carries at most 253 in one message (SCM_MAX_FD, include/net/scm.h).
inline constexpr size_t kMaxFrameDescriptors = 250;

struct SocketFrame {
  std::string bytes;
  std::vector<UniqueFd> descriptors;  // close-on-exec
};

// Sends one whole frame. `timeout` bounds the whole call, whether `socket` blocks or not. Never raises
// SIGPIPE. Errors:
//   InvalidArgument   more bytes or descriptors than the caps above; nothing was sent
//   DeadlineExceeded  the peer does not read; part of the frame may have gone: close the socket
//   Unavailable       the peer is gone
//   Internal          anything else, with the system's reason
absl::Status WriteFrame(int socket, absl::string_view bytes, absl::Span<const int> descriptors,
                        absl::Duration timeout);

// Receives one whole frame, reading not a byte beyond it. `timeout` bounds the whole call. Errors:
//   OutOfRange         the peer closed the connection before the first byte of a frame
//   DataLoss           it closed within a frame
//   InvalidArgument    a length above `max_bytes`, or more descriptors than `max_descriptors` (those are
//   closed) DeadlineExceeded   not all of a frame came in time Unavailable        the connection was reset
//   Internal           anything else, with the system's reason
// After an error other than a DeadlineExceeded before the first byte (see `started`), the stream has no frame
// boundary any more: close it.
absl::StatusOr<SocketFrame> ReadFrame(int socket, absl::Duration timeout, size_t max_bytes = kMaxFrameBytes,
                                      size_t max_descriptors = kMaxFrameDescriptors, bool* started = nullptr);

// For whoever serves many sockets from one loop: takes bytes as they come, gives whole frames. Holds at most
// one frame's worth beyond what was appended at once. Descriptors are not its business.
class FrameBuffer {
 public:
  explicit FrameBuffer(size_t max_bytes = kMaxFrameBytes) : max_bytes_(max_bytes) {}

  // InvalidArgument when a frame announces more than `max_bytes`: close the connection.
  absl::Status Append(absl::string_view bytes);
  // The next whole frame, without its length; nullopt: more bytes are needed.
  std::optional<std::string> Next();
  // True between frames.
  bool empty() const { return pending_.size() == consumed_; }

 private:
  absl::Status CheckLength() const;

  size_t max_bytes_;
  std::string pending_;
  size_t consumed_ = 0;
  absl::Status status_;
};

// The length word and the bytes, ready to be sent by any means. `bytes` must keep the cap.
std::string EncodeFrame(absl::string_view bytes);

}  // namespace xenprof

#endif  // XENPROF_BASE_FRAMING_H_
