// What this process itself uses.
#ifndef DAEMON_SELF_USAGE_H_
#define DAEMON_SELF_USAGE_H_

#include <cstdint>

namespace xenprof::daemon {

struct SelfUsage {
  uint64_t cpu_ns = 0;  // user and system, all threads, also those that ended
  uint64_t resident_bytes = 0;
  uint64_t anonymous_bytes = 0;  // resident without files and rings: what can grow
};
SelfUsage ReadSelfUsage();

}  // namespace xenprof::daemon

#endif  // DAEMON_SELF_USAGE_H_
