#include "daemon/self_usage.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

#include "xenprof/base/framing.h"

namespace xenprof::daemon {

SelfUsage ReadSelfUsage() {
  SelfUsage usage;
  rusage resources;
  if (getrusage(RUSAGE_SELF, &resources) == 0) {
    const auto ns = [](const timeval& time) {
      return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_usec) * 1000;
    };
    usage.cpu_ns = ns(resources.ru_utime) + ns(resources.ru_stime);
  }
  // proc(5), statm: size, resident, shared (file and shared memory pages), in pages.
  UniqueFd fd(open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  char text[128];
  const ssize_t size = fd.valid() ? read(fd.get(), text, sizeof(text) - 1) : -1;
  unsigned long total, resident, shared;
  if (size > 0) {
    text[size] = 0;
    if (sscanf(text, "%lu %lu %lu", &total, &resident, &shared) == 3) {
      const uint64_t page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
      usage.resident_bytes = resident * page_bytes;
      usage.anonymous_bytes = resident > shared ? (resident - shared) * page_bytes : 0;
    }
  }
  return usage;
}

}  // namespace xenprof::daemon
