#include "xenprof/perf/events.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

extern "C" {
#include <perf/core.h>
#include <perf/cpumap.h>
#include <perf/evsel.h>
}

#include <algorithm>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"

namespace xenprof::perf {
namespace {

// The libperf this runs with may know a longer perf_event_attr than the headers this was compiled with, and
// copies as many bytes as it knows.
union PaddedAttr {
  perf_event_attr attr;
  uint8_t room[512];
};

struct Droppable {
  const char* name;
  void (*drop)(perf_event_attr*);
};
// Newest first, with the version that brought it.
constexpr Droppable kDroppable[] = {
    {"read_format.lost", [](perf_event_attr* a) { a->read_format &= ~uint64_t{PERF_FORMAT_LOST}; }},  // 6.0
    {"build_id", [](perf_event_attr* a) { a->build_id = 0; }},                                        // 5.12
    {"ksymbol", [](perf_event_attr* a) { a->ksymbol = 0; }},                                          // 5.0
};

// PERF_REG_X86_IP of arch/x86/include/uapi/asm/perf_regs.h, as a mask; 0: not a processor we know the
// registers of.
#if defined(__x86_64__)
constexpr uint64_t kInterruptedIpRegister = 1 << 8;
#else
constexpr uint64_t kInterruptedIpRegister = 0;
#endif

int QuietPrint(libperf_print_level, const char*, va_list) { return 0; }

void InitLibperf() {
  // Also makes libperf learn the page size.
  static const bool done = (libperf_init(QuietPrint), true);
  (void)done;
}

// The number in a one-number file below /proc/sys.
std::optional<int64_t> ReadSysctl(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  char text[32];
  const ssize_t size = read(fd, text, sizeof(text));
  close(fd);
  int64_t value;
  if (size <= 0 || !absl::SimpleAtoi(absl::string_view(text, size), &value)) return std::nullopt;
  return value;
}

bool HasCapability(int capability) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  return (data[capability / 32].effective >> (capability % 32) & 1) != 0;
}

absl::Status EventNameError(absl::string_view name) {
  return absl::InvalidArgumentError(
      absl::StrCat("unknown event \"", name, "\": this profiler samples by \"cycles\" or \"cpu-clock\""));
}

absl::Status OpenError(const std::string& event, uint32_t cpu, int error) {
  const std::string what = absl::StrCat("event ", event, " on CPU ", cpu, ": ", strerror(error), ": ");
  switch (error) {
    case EACCES:
    case EPERM: {
      const std::optional<int64_t> paranoid = ReadSysctl("/proc/sys/kernel/perf_event_paranoid");
      return absl::PermissionDeniedError(absl::StrCat(
          what, "sampling whole CPUs takes CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8) or root; ",
          "kernel.perf_event_paranoid is ", paranoid.has_value() ? absl::StrCat(*paranoid) : "unknown",
          ", and kernel lockdown may forbid it too"));
    }
    case ENOENT:
      return absl::NotFoundError(
          absl::StrCat(what, "this kernel has no such event here",
                       event == kCycles ? " (no PMU driver for this CPU, or no PMU given to dom0)" : ""));
    case ENODEV:
      return absl::NotFoundError(absl::StrCat(what, "the CPU is offline, or its PMU does not count this"));
    case EOPNOTSUPP:
      return absl::NotFoundError(absl::StrCat(what, "the PMU cannot interrupt, so it cannot sample"));
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(absl::StrCat(
          what, "too many open files: raise the limit (ulimit -n, LimitNOFILE=); each CPU takes two"));
    case EBUSY:
      return absl::ResourceExhaustedError(
          absl::StrCat(what, "another program holds the PMU for itself (the NMI watchdog, or a profiler)"));
    case EOVERFLOW:
      return absl::InvalidArgumentError(
          absl::StrCat(what, "more frames asked for than kernel.perf_event_max_stack"));
    case EINVAL:
    case E2BIG:
      return absl::InvalidArgumentError(absl::StrCat(
          what, "the kernel refuses the event's attributes even without those that newer kernels brought"));
    default:
      return absl::InternalError(absl::StrCat(what, "perf_event_open failed"));
  }
}

absl::StatusOr<PaddedAttr> MakeAttr(const SamplingOptions& options) {
  PaddedAttr padded;
  memset(&padded, 0, sizeof(padded));
  perf_event_attr& attr = padded.attr;
  attr.size = sizeof(attr);
  if (options.event == kCycles) {
    attr.type = PERF_TYPE_HARDWARE;
    attr.config = PERF_COUNT_HW_CPU_CYCLES;
  } else if (options.event == kCpuClock) {
    attr.type = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_CPU_CLOCK;
  } else {
    return EventNameError(options.event);
  }
  attr.freq = 1;
  attr.sample_freq = options.frequency_hz;
  attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CALLCHAIN;
  if (options.interrupted_ip && kInterruptedIpRegister != 0) {
    attr.sample_type |= PERF_SAMPLE_REGS_INTR;
    attr.sample_regs_intr = kInterruptedIpRegister;
  }
  attr.sample_max_stack = static_cast<uint16_t>(options.max_stack);
  attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING | PERF_FORMAT_LOST;
  attr.disabled = 1;
  // Nothing is excluded: a PV dom0's kernel runs at CPL 3, so exclude_kernel would drop Xen and exclude_user
  // the kernel.
  attr.mmap = 1;
  attr.mmap2 = 1;
  attr.build_id = 1;
  attr.comm = 1;
  attr.comm_exec = 1;
  attr.task = 1;
  attr.ksymbol = 1;
  attr.sample_id_all = 1;
  // The one clock that runs alike on all CPUs of a PV dom0 and is not slewed.
  attr.use_clockid = 1;
  attr.clockid = CLOCK_MONOTONIC_RAW;
  attr.watermark = 1;
  return padded;
}

// Everything below opens events under this lock, so that a new descriptor can be told from those already
// known.
absl::Mutex open_mutex(absl::kConstInit);
absl::flat_hash_set<uint64_t>& KnownIds() ABSL_EXCLUSIVE_LOCKS_REQUIRED(open_mutex) {
  static auto* ids = new absl::flat_hash_set<uint64_t>;
  return *ids;
}

// The id of the event behind `fd`, if it is one that is not yet ours.
std::optional<uint64_t> NewEventId(int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(open_mutex) {
  char target[64];
  const ssize_t size = readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), target, sizeof(target));
  if (size <= 0 || absl::string_view(target, size) != "anon_inode:[perf_event]") return std::nullopt;
  uint64_t id = 0;
  if (ioctl(fd, PERF_EVENT_IOC_ID, &id) != 0 || KnownIds().contains(id)) return std::nullopt;
  return id;
}

// libperf keeps the descriptor of an event to itself, and a thread must wait on just its own ring: finds the
// one that has come since. `guess` is looked at first.
bool FindDescriptor(int guess, int* fd, uint64_t* id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(open_mutex) {
  if (std::optional<uint64_t> found = NewEventId(guess)) {
    *fd = guess;
    *id = *found;
    return true;
  }
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return false;
  bool found_any = false;
  while (const dirent* entry = readdir(folder)) {
    int candidate;
    if (!absl::SimpleAtoi(entry->d_name, &candidate)) continue;
    if (std::optional<uint64_t> found = NewEventId(candidate)) {
      *fd = candidate;
      *id = *found;
      found_any = true;
      break;
    }
  }
  closedir(folder);
  return found_any;
}

// Opens `evsel` on one CPU; returns a negative errno like libperf.
int OpenOn(perf_evsel* evsel, uint32_t cpu) {
  perf_cpu_map* cpus = perf_cpu_map__new(absl::StrCat(cpu).c_str());
  if (cpus == nullptr) return -ENOMEM;
  const int result = perf_evsel__open(evsel, cpus, nullptr);
  perf_cpu_map__put(cpus);
  return result;
}

// Bytes after which a reader is woken: half of a small ring, not more than what a core's cache holds of a
// large one.
uint32_t Watermark(uint64_t ring_bytes) {
  return static_cast<uint32_t>(std::min<uint64_t>(ring_bytes / 2, 256 << 10));
}

}  // namespace

absl::StatusOr<SamplingPlan> SamplingPlan::Probe(const SamplingOptions& options, uint32_t cpu) {
  InitLibperf();
  SamplingPlan plan;
  plan.options_ = options;
  if (options.frequency_hz == 0) return absl::InvalidArgumentError("a frequency of 0 Hz does not sample");
  const std::optional<int64_t> max_rate = ReadSysctl("/proc/sys/kernel/perf_event_max_sample_rate");
  if (max_rate.has_value() && options.frequency_hz > *max_rate) {
    return absl::InvalidArgumentError(
        absl::StrCat("frequency ", options.frequency_hz,
                     " Hz is above kernel.perf_event_max_sample_rate, which is ", *max_rate));
  }
  const std::optional<int64_t> max_stack = ReadSysctl("/proc/sys/kernel/perf_event_max_stack");
  if (max_stack.has_value() && *max_stack > 0) {
    plan.options_.max_stack = std::min<uint32_t>(options.max_stack, static_cast<uint32_t>(*max_stack));
  }
  absl::StatusOr<PaddedAttr> attr = MakeAttr(plan.options_);
  if (!attr.ok()) return attr.status();

  absl::MutexLock lock(&open_mutex);
  for (size_t next = 0;;) {
    perf_evsel* evsel = perf_evsel__new(&attr->attr);
    if (evsel == nullptr) return absl::ResourceExhaustedError("no memory for an event");
    const int error = -OpenOn(evsel, cpu);
    if (error == 0) perf_evsel__close(evsel);
    perf_evsel__delete(evsel);
    if (error == 0) return plan;
    if ((error != EINVAL && error != E2BIG) || next == std::size(kDroppable)) {
      return OpenError(options.event, cpu, error);
    }
    kDroppable[next].drop(&attr->attr);
    plan.dropped_ |= 1u << next;
    plan.refused_.push_back(kDroppable[next].name);
    ++next;
  }
}

RecordLayout SamplingPlan::layout() const {
  RecordLayout layout;
  layout.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CALLCHAIN;
  if (options_.interrupted_ip && kInterruptedIpRegister != 0) {
    layout.sample_type |= PERF_SAMPLE_REGS_INTR;
    layout.sample_regs_intr = kInterruptedIpRegister;
  }
  layout.sample_id_all = true;
  return layout;
}

uint64_t RingBytes(uint32_t frequency_hz, uint32_t max_stack) {
  // Header, ip, ids, time, count and two markers, and a chain as deep as they come on average at worst.
  const uint64_t record_bytes = 56 + 8 * uint64_t{std::min(max_stack, 48u)};
  uint64_t bytes = 256 << 10;
  while (bytes < frequency_hz * record_bytes / 2 && bytes < (uint64_t{64} << 20)) bytes *= 2;
  return bytes;
}

uint64_t RingBytesLimit() {
  if (HasCapability(CAP_IPC_LOCK)) return UINT64_MAX;
  const std::optional<int64_t> paranoid = ReadSysctl("/proc/sys/kernel/perf_event_paranoid");
  if (paranoid.has_value() && *paranoid < 0) return UINT64_MAX;
  const int64_t limit_kb = ReadSysctl("/proc/sys/kernel/perf_event_mlock_kb").value_or(516);
  const uint64_t page_bytes = sysconf(_SC_PAGESIZE);
  uint64_t bytes = page_bytes;
  while (bytes * 2 + page_bytes <= static_cast<uint64_t>(std::max<int64_t>(limit_kb, 0)) << 10) bytes *= 2;
  return bytes;
}

absl::StatusOr<std::unique_ptr<CpuEvent>> CpuEvent::Open(uint32_t cpu, const SamplingPlan& plan,
                                                         uint64_t ring_bytes) {
  InitLibperf();
  const uint64_t page_bytes = sysconf(_SC_PAGESIZE);
  if (ring_bytes < page_bytes || (ring_bytes & (ring_bytes - 1)) != 0 || ring_bytes > (uint64_t{1} << 30)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ring of ", ring_bytes, " bytes: it takes a power of two, from a page to 1 GiB"));
  }
  absl::StatusOr<PaddedAttr> attr = MakeAttr(plan.options_);
  if (!attr.ok()) return attr.status();
  for (size_t i = 0; i < std::size(kDroppable); ++i) {
    if ((plan.dropped_ >> i & 1) != 0) kDroppable[i].drop(&attr->attr);
  }
  auto event = std::unique_ptr<CpuEvent>(new CpuEvent);
  event->cpu_ = cpu;
  // The kernel turns a frequency of this clock into a fixed period when it opens it, and from then on takes a
  // period.
  event->period_in_ns_ = attr->attr.type == PERF_TYPE_SOFTWARE;
  event->has_lost_ = (attr->attr.read_format & PERF_FORMAT_LOST) != 0;

  absl::MutexLock lock(&open_mutex);
  for (;; ring_bytes /= 2) {
    attr->attr.wakeup_watermark = Watermark(ring_bytes);
    event->evsel_ = perf_evsel__new(&attr->attr);
    if (event->evsel_ == nullptr) return absl::ResourceExhaustedError("no memory for an event");
    // The lowest free descriptor is what the kernel gives next.
    const int guess = dup(STDERR_FILENO);
    if (guess >= 0) close(guess);
    const int error = -OpenOn(event->evsel_, cpu);
    if (error != 0) {
      perf_evsel__delete(event->evsel_);
      event->evsel_ = nullptr;
      return OpenError(plan.options_.event, cpu, error);
    }
    errno = 0;
    if (perf_evsel__mmap(event->evsel_, static_cast<int>(ring_bytes / page_bytes)) == 0) {
      if (!FindDescriptor(guess, &event->fd_, &event->id_)) {
        return absl::InternalError(absl::StrCat("event ", plan.options_.event, " on CPU ", cpu,
                                                ": its descriptor is not in /proc/self/fd"));
      }
      KnownIds().insert(event->id_);
      break;
    }
    const int map_error = errno;
    perf_evsel__close(event->evsel_);
    perf_evsel__delete(event->evsel_);
    event->evsel_ = nullptr;
    if ((map_error != EPERM && map_error != ENOMEM) ||
        ring_bytes / 2 < std::max<uint64_t>(page_bytes, 8 << 10)) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "ring of ", ring_bytes, " bytes on CPU ", cpu, ": ", strerror(map_error),
          map_error == EPERM
              ? ": kernel.perf_event_mlock_kb and the limit of locked memory (ulimit -l, LimitMEMLOCK=) "
                "leave no room for it"
              : ""));
    }
  }
  fcntl(event->fd_, F_SETFD, FD_CLOEXEC);
  event->ring_bytes_ = ring_bytes;
  auto* base = static_cast<uint8_t*>(perf_evsel__mmap_base(event->evsel_, 0, 0));
  event->ring_ =
      std::make_unique<Ring>(reinterpret_cast<perf_event_mmap_page*>(base), base + page_bytes, ring_bytes);
  return event;
}

CpuEvent::~CpuEvent() {
  if (evsel_ == nullptr) return;
  absl::MutexLock lock(&open_mutex);
  KnownIds().erase(id_);
  perf_evsel__munmap(evsel_);
  perf_evsel__close(evsel_);
  perf_evsel__delete(evsel_);
}

absl::Status CpuEvent::Enable() {
  errno = 0;
  if (perf_evsel__enable(evsel_) != 0) {
    return absl::InternalError(absl::StrCat("cannot start the event on CPU ", cpu_, ": ", strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status CpuEvent::Disable() {
  errno = 0;
  if (perf_evsel__disable(evsel_) != 0) {
    return absl::InternalError(absl::StrCat("cannot stop the event on CPU ", cpu_, ": ", strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status CpuEvent::SetFrequency(uint32_t hz) {
  if (hz == 0) return absl::InvalidArgumentError("a frequency of 0 Hz does not sample");
  uint64_t value = period_in_ns_ ? 1'000'000'000 / hz : hz;
  if (ioctl(fd_, PERF_EVENT_IOC_PERIOD, &value) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot set ", hz, " Hz on CPU ", cpu_, ": ",
                                                   strerror(errno),
                                                   "; see kernel.perf_event_max_sample_rate"));
  }
  return absl::OkStatus();
}

absl::StatusOr<CpuEvent::Counts> CpuEvent::Read() const {
  uint64_t values[4] = {};
  const ssize_t want = static_cast<ssize_t>((has_lost_ ? 4 : 3) * sizeof(uint64_t));
  const ssize_t size = read(fd_, values, want);
  if (size != want) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the event on CPU ", cpu_, " is dead: ", size < 0 ? strerror(errno) : "the kernel has stopped it"));
  }
  return Counts{values[0], values[1], values[2], has_lost_ ? values[3] : 0};
}

absl::StatusOr<std::vector<uint32_t>> ParseCpuList(absl::string_view text) {
  constexpr uint32_t kMaxCpu = 1 << 16;
  std::vector<uint32_t> cpus;
  for (absl::string_view part : absl::StrSplit(absl::StripAsciiWhitespace(text), ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(part, absl::MaxSplits('-', 1));
    uint32_t first, last;
    const bool range = absl::StrContains(part, '-');
    if (!absl::SimpleAtoi(ends.first, &first) || !absl::SimpleAtoi(range ? ends.second : ends.first, &last) ||
        last < first || last >= kMaxCpu) {
      return absl::InvalidArgumentError(absl::StrCat("\"", part, "\" is no range of CPUs"));
    }
    for (uint32_t cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

}  // namespace xenprof::perf
