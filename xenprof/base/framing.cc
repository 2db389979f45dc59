#include "xenprof/base/framing.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace xenprof {
namespace {

constexpr size_t kLengthBytes = 4;

// A point on CLOCK_MONOTONIC: setting the calendar must neither cut a wait short nor stretch it.
class Deadline {
 public:
  explicit Deadline(absl::Duration timeout)
      : infinite_(timeout == absl::InfiniteDuration()),
        end_(Now() + (infinite_ ? absl::ZeroDuration() : timeout)) {}

  // As poll() takes it; rounded up, so that a wait never ends early and spins.
  int RemainingMs() const {
    if (infinite_) return -1;
    const absl::Duration left = end_ - Now();
    if (left <= absl::ZeroDuration()) return 0;
    return static_cast<int>(
        std::min<int64_t>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))), 1 << 30));
  }

 private:
  static absl::Duration Now() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return absl::DurationFromTimespec(now);
  }

  bool infinite_;
  absl::Duration end_;
};

absl::Status SystemError(absl::string_view what, int error) {
  const std::string text = absl::StrCat(what, ": ", strerror(error));
  if (error == EPIPE || error == ECONNRESET) return absl::UnavailableError(text);
  return absl::InternalError(text);
}

absl::Status WaitFor(int socket, short events, const Deadline& deadline) {
  pollfd poll_fd = {socket, events, 0};
  for (;;) {
    const int ready = poll(&poll_fd, 1, deadline.RemainingMs());
    if (ready > 0) return absl::OkStatus();
    if (ready == 0) return absl::DeadlineExceededError("the peer did not answer in time");
    if (errno != EINTR) return SystemError("poll", errno);
  }
}

uint32_t LoadLength(const char* bytes) {
  uint8_t b[kLengthBytes];
  memcpy(b, bytes, sizeof(b));
  return b[0] | b[1] << 8 | b[2] << 16 | static_cast<uint32_t>(b[3]) << 24;
}

void StoreLength(size_t length, char* bytes) {
  for (size_t i = 0; i < kLengthBytes; ++i) bytes[i] = static_cast<char>(length >> (8 * i));
}

absl::Status LengthError(uint32_t length, size_t max_bytes) {
  return absl::InvalidArgumentError(
      absl::StrCat("a message announces ", length, " bytes, more than the ", max_bytes, " allowed"));
}

// One recvmsg of at most `size` bytes, appending descriptors; 0 at the end of the stream.
absl::StatusOr<size_t> Receive(int socket, char* data, size_t size, const Deadline& deadline,
                               size_t max_descriptors, std::vector<UniqueFd>* descriptors) {
  for (;;) {
    absl::Status ready = WaitFor(socket, POLLIN, deadline);
    if (!ready.ok()) return ready;
    iovec part = {data, size};
    // Room for more than any kernel sends: a truncated control message would lose descriptors without closing
    // them.
    alignas(cmsghdr) char control[CMSG_SPACE(256 * sizeof(int))];
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (received < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return SystemError("recvmsg", errno);
    }
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd;
        memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
        descriptors->emplace_back(fd);
      }
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
      return absl::InternalError("descriptors were lost on the way; is the limit of open files reached?");
    }
    if (descriptors->size() > max_descriptors) {
      return absl::InvalidArgumentError(
          absl::StrCat("a message carries more than the ", max_descriptors, " descriptors allowed"));
    }
    return static_cast<size_t>(received);
  }
}

}  // namespace

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

std::string EncodeFrame(absl::string_view bytes) {
  std::string frame(kLengthBytes, '\0');
  StoreLength(bytes.size(), frame.data());
  frame.append(bytes.data(), bytes.size());
  return frame;
}

absl::Status WriteFrame(int socket, absl::string_view bytes, absl::Span<const int> descriptors,
                        absl::Duration timeout) {
  if (bytes.size() > kMaxFrameBytes) return LengthError(bytes.size(), kMaxFrameBytes);
  if (descriptors.size() > kMaxFrameDescriptors) {
    return absl::InvalidArgumentError(absl::StrCat(
        descriptors.size(), " descriptors do not fit into one message of ", kMaxFrameDescriptors));
  }
  const Deadline deadline(timeout);
  char length[kLengthBytes];
  StoreLength(bytes.size(), length);
  const size_t total = kLengthBytes + bytes.size();
  size_t sent = 0;
  while (sent < total) {
    iovec parts[2];
    size_t part_count = 0;
    if (sent < kLengthBytes) parts[part_count++] = {length + sent, kLengthBytes - sent};
    const size_t skip = sent < kLengthBytes ? 0 : sent - kLengthBytes;
    if (skip < bytes.size())
      parts[part_count++] = {const_cast<char*>(bytes.data()) + skip, bytes.size() - skip};
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = part_count;
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxFrameDescriptors * sizeof(int))];
    // With the first byte, and only once: a second sendmsg would pass them again.
    if (sent == 0 && !descriptors.empty()) {
      memset(control, 0, sizeof(control));
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
    }
    const ssize_t result = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (result >= 0) {
      sent += static_cast<size_t>(result);
    } else if (errno == EAGAIN) {
      absl::Status ready = WaitFor(socket, POLLOUT, deadline);
      if (!ready.ok()) return ready;
    } else if (errno != EINTR) {
      return SystemError("sendmsg", errno);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SocketFrame> ReadFrame(int socket, absl::Duration timeout, size_t max_bytes,
                                      size_t max_descriptors, bool* started) {
  const Deadline deadline(timeout);
  SocketFrame frame;
  char length_bytes[kLengthBytes];
  size_t have = 0;
  if (started != nullptr) *started = false;
  // One loop body for both parts: a stream may hand over any number of bytes at once.
  const auto fill = [&](char* data, size_t size) -> absl::Status {
    have = 0;
    while (have < size) {
      absl::StatusOr<size_t> received =
          Receive(socket, data + have, size - have, deadline, max_descriptors, &frame.descriptors);
      if (!received.ok()) return received.status();
      if (*received == 0) return absl::DataLossError("the connection was closed within a message");
      have += *received;
      if (started != nullptr) *started = true;
    }
    return absl::OkStatus();
  };
  absl::Status filled = fill(length_bytes, kLengthBytes);
  if (!filled.ok()) {
    if (absl::IsDataLoss(filled) && have == 0) return absl::OutOfRangeError("the peer closed the connection");
    return filled;
  }
  const uint32_t length = LoadLength(length_bytes);
  if (length > max_bytes) return LengthError(length, max_bytes);
  frame.bytes.resize(length);
  filled = fill(frame.bytes.data(), length);
  if (!filled.ok()) return filled;
  return frame;
}

absl::Status FrameBuffer::CheckLength() const {
  if (pending_.size() - consumed_ < kLengthBytes) return absl::OkStatus();
  const uint32_t length = LoadLength(pending_.data() + consumed_);
  return length > max_bytes_ ? LengthError(length, max_bytes_) : absl::OkStatus();
}

absl::Status FrameBuffer::Append(absl::string_view bytes) {
  if (!status_.ok()) return status_;
  pending_.append(bytes.data(), bytes.size());
  return status_ = CheckLength();
}

std::optional<std::string> FrameBuffer::Next() {
  if (!status_.ok() || pending_.size() - consumed_ < kLengthBytes) return std::nullopt;
  status_ = CheckLength();  // a frame behind the first is only looked at here
  if (!status_.ok()) return std::nullopt;
  const size_t length = LoadLength(pending_.data() + consumed_);
  if (pending_.size() - consumed_ - kLengthBytes < length) {
    pending_.erase(0, consumed_);
    consumed_ = 0;
    return std::nullopt;
  }
  std::string frame = pending_.substr(consumed_ + kLengthBytes, length);
  consumed_ += kLengthBytes + length;
  if (consumed_ == pending_.size()) {
    pending_.clear();
    consumed_ = 0;
  }
  return frame;
}

}  // namespace xenprof
