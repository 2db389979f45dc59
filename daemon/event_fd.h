// A descriptor one thread makes readable to wake another from poll().
#ifndef DAEMON_EVENT_FD_H_
#define DAEMON_EVENT_FD_H_

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "xenprof/base/framing.h"

namespace xenprof::daemon {

class EventFd {
 public:
  EventFd() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  bool valid() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }

  // Any thread. Costs a system call only when the other side has consumed the last signal.
  void Signal() {
    if (pending_.exchange(true, std::memory_order_acq_rel)) return;
    const uint64_t one = 1;
    if (write(fd_.get(), &one, sizeof(one)) < 0) {
      // Only when the counter is at its limit: then it is readable anyway.
    }
  }
  // By the thread that waits, before it looks at what it was woken for: a signal from then on is a new one.
  void Clear() {
    uint64_t count;
    if (read(fd_.get(), &count, sizeof(count)) < 0) {
      // Nothing was pending.
    }
    // Acquire, and so an exchange: what was put down before a signal that found one pending must be seen too.
    pending_.exchange(false, std::memory_order_acq_rel);
  }

 private:
  UniqueFd fd_;
  std::atomic<bool> pending_ = false;
};

}  // namespace xenprof::daemon

#endif  // DAEMON_EVENT_FD_H_
