// A file descriptor that closes itself.
#ifndef XENPROF_SYMBOLS_UNIQUE_FD_H_
#define XENPROF_SYMBOLS_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace xenprof::symbols {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { Reset(-1); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Reset(int fd) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_UNIQUE_FD_H_
