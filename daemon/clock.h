// The clocks of chunks.
#ifndef DAEMON_CLOCK_H_
#define DAEMON_CLOCK_H_

#include <time.h>

#include <cstdint>

namespace xenprof::daemon {

inline constexpr uint64_t kMillisecondNs = 1'000'000;
inline constexpr uint64_t kSecondNs = 1'000'000'000;

inline uint64_t ClockNs(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecondNs + static_cast<uint64_t>(now.tv_nsec);
}

// CLOCK_MONOTONIC_RAW, which samples are stamped with. No system call.
inline uint64_t NowNs() { return ClockNs(CLOCK_MONOTONIC_RAW); }

// CLOCK_REALTIME minus CLOCK_MONOTONIC_RAW, both read within a fraction of a microsecond of each other.
inline int64_t RealtimeOffsetNs() {
  int64_t best = 0;
  uint64_t best_span = ~uint64_t{0};
  for (int attempt = 0; attempt < 3; ++attempt) {
    const uint64_t before = NowNs();
    const uint64_t realtime = ClockNs(CLOCK_REALTIME);
    const uint64_t span = NowNs() - before;
    if (span >= best_span) continue;
    best_span = span;
    best = static_cast<int64_t>(realtime) - static_cast<int64_t>(before + span / 2);
  }
  return best;
}

}  // namespace xenprof::daemon

#endif  // DAEMON_CLOCK_H_
