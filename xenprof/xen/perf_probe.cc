#include "xenprof/xen/perf_probe.h"

#include <linux/perf_event.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "xenprof/base/types.h"

namespace xenprof::xen {
namespace {

constexpr size_t kDataPages = 8;

// Copies `size` bytes at ring position `at`; the ring wraps inside records.
void CopyOut(const uint8_t* data, size_t data_bytes, uint64_t at, void* to, size_t size) {
  for (size_t i = 0; i < size; ++i) static_cast<uint8_t*>(to)[i] = data[(at + i) & (data_bytes - 1)];
}

// Looks at records of {header, u64 ip, u64 nr, u64 ips[nr]}: PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN.
void Drain(perf_event_mmap_page* page, size_t page_bytes, PerfProbeResult* result) {
  const auto* data = reinterpret_cast<const uint8_t*>(page) + page_bytes;
  const size_t data_bytes = kDataPages * page_bytes;
  // The kernel writes a record, then data_head; see the comment of struct perf_event_mmap_page.
  const uint64_t head = std::atomic_ref<__u64>(page->data_head).load(std::memory_order_acquire);
  uint64_t tail = page->data_tail;
  while (head - tail >= sizeof(perf_event_header)) {
    perf_event_header header;
    CopyOut(data, data_bytes, tail, &header, sizeof(header));
    if (header.size < sizeof(header) || header.size > head - tail) break;
    if (header.type == PERF_RECORD_SAMPLE && header.size >= sizeof(header) + 16) {
      ++result->samples;
      uint64_t words[2];
      CopyOut(data, data_bytes, tail + sizeof(header), words, sizeof(words));
      uint64_t frames = 0;
      if (IsHypervisorAddress(words[0])) {
        ++result->xen_samples;
        frames = 1;
      }
      const uint64_t entries = std::min<uint64_t>(words[1], (header.size - sizeof(header) - 16) / 8);
      uint64_t run = 0;
      for (uint64_t i = 0; i < entries; ++i) {
        uint64_t entry;
        CopyOut(data, data_bytes, tail + sizeof(header) + 16 + i * 8, &entry, sizeof(entry));
        if (entry >= static_cast<uint64_t>(PERF_CONTEXT_MAX)) continue;  // a marker, not an address
        if (!IsHypervisorAddress(entry)) break;
        ++run;
      }
      if (frames != 0)
        result->max_xen_frames = std::max<uint32_t>(result->max_xen_frames, std::max(frames, run));
    }
    tail += header.size;
  }
  std::atomic_ref<__u64>(page->data_tail).store(tail, std::memory_order_release);
}

class CpuBinding {
 public:
  explicit CpuBinding(uint32_t cpu)
      : bytes_(CPU_ALLOC_SIZE(std::max<uint32_t>(cpu + 1, 4096))), before_(bytes_ / 8) {
    saved_ = sched_getaffinity(0, bytes_, set(before_)) == 0;
    std::vector<uint64_t> only(bytes_ / 8);
    CPU_SET_S(cpu, bytes_, set(only));
    sched_setaffinity(0, bytes_, set(only));
  }
  ~CpuBinding() {
    if (saved_) sched_setaffinity(0, bytes_, set(before_));
  }

 private:
  static cpu_set_t* set(std::vector<uint64_t>& words) { return reinterpret_cast<cpu_set_t*>(words.data()); }
  const size_t bytes_;
  std::vector<uint64_t> before_;
  bool saved_ = false;
};

}  // namespace

PerfProbeResult ProbePerfEvent(const PerfProbeRequest& request) {
  PerfProbeResult result;
  perf_event_attr attr = {};
  attr.size = sizeof(attr);
  attr.type = request.hardware ? PERF_TYPE_HARDWARE : PERF_TYPE_SOFTWARE;
  attr.config = request.hardware ? uint64_t{PERF_COUNT_HW_CPU_CYCLES} : uint64_t{PERF_COUNT_SW_CPU_CLOCK};
  attr.sample_period = request.hardware ? 2'000'000 : 1'000'000;  // cycles; ns
  attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN;
  attr.disabled = 1;
  attr.watermark = 1;
  attr.wakeup_watermark = 1 << 30;  // polled, nobody is to be woken
  // A size the kernel does not know is refused only when bytes it does not know are set: none are.
  const int fd =
      static_cast<int>(syscall(SYS_perf_event_open, &attr, -1, request.cpu, -1, PERF_FLAG_FD_CLOEXEC));
  if (fd < 0) {
    result.error = errno;
    return result;
  }
  const size_t page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t map_bytes = (kDataPages + 1) * page_bytes;
  void* map = mmap(nullptr, map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) {
    result.error = errno;
    close(fd);
    return result;
  }
  auto* page = static_cast<perf_event_mmap_page*>(map);
  {
    CpuBinding binding(request.cpu);
    ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(request.limit_ms);
    while (result.samples == 0 && std::chrono::steady_clock::now() < end) {
      // System calls, so that a PV dom0 enters its kernel and Xen as well.
      for (int i = 0; i < 200; ++i) syscall(SYS_getppid);
      Drain(page, page_bytes, &result);
    }
    ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
    Drain(page, page_bytes, &result);
  }
  uint64_t count = 0;
  if (read(fd, &count, sizeof(count)) == static_cast<ssize_t>(sizeof(count))) result.count = count;
  munmap(map, map_bytes);
  close(fd);
  return result;
}

std::string ExplainPerfError(int error) {
  switch (error) {
    case ENOENT:
      return "the kernel has no such event: it found no PMU when it booted";
    case EOPNOTSUPP:
      return "the kernel's PMU driver cannot do it";
    case ENODEV:
      return "the PMU cannot do it";
    case EACCES:
    case EPERM:
      return "not permitted: root, CAP_PERFMON, or a lower kernel.perf_event_paranoid is needed";
    case EBUSY:
      return "another user has the PMU to itself";
    case EMFILE:
      return "too many open files";
    case EINVAL:
      return "the kernel refuses the event's attributes";
    case ENOSYS:
      return "the kernel was built without perf events";
    default:
      return strerror(error);
  }
}

}  // namespace xenprof::xen
