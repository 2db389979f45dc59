// The sampling events, one per CPU, through libperf: which, with what attributes, and how large a ring.
#ifndef XENPROF_PERF_EVENTS_H_
#define XENPROF_PERF_EVENTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "xenprof/perf/record.h"
#include "xenprof/perf/ring.h"

struct perf_evsel;

namespace xenprof::perf {

// The events this profiler samples by. Raw event codes are refused on purpose: a stray bit in one has crashed
// Xen.
inline constexpr absl::string_view kCycles = "cycles";       // PERF_COUNT_HW_CPU_CYCLES
inline constexpr absl::string_view kCpuClock = "cpu-clock";  // PERF_COUNT_SW_CPU_CLOCK

struct SamplingOptions {
  std::string event = std::string(kCpuClock);
  uint32_t frequency_hz = 97;
  uint32_t max_stack = 127;  // frames; lowered to sysctl kernel.perf_event_max_stack where that is less
  // With each sample the register that held the address interrupted (PERF_SAMPLE_REGS_INTR), on x86-64. For a
  // timer on a PV dom0, where the sample's own address may be a guest's of long ago.
  bool interrupted_ip = false;
};

// What the running kernel takes of what we ask for.
class SamplingPlan {
 public:
  // Opens the event on `cpu` for a moment. Attributes an older kernel refuses (EINVAL, E2BIG) are given up
  // one by one, the newest first. Errors say what the errno means for this event: PermissionDenied (EACCES,
  // EPERM), NotFound (ENOENT, ENODEV, EOPNOTSUPP: there is no such counter here), ResourceExhausted (EMFILE,
  // EBUSY), InvalidArgument (an unknown event name, a frequency above sysctl
  // kernel.perf_event_max_sample_rate), Internal.
  static absl::StatusOr<SamplingPlan> Probe(const SamplingOptions& options, uint32_t cpu);

  const SamplingOptions& options() const { return options_; }
  // Attributes given up: "build_id", "ksymbol", "read_format.lost".
  const std::vector<std::string>& refused() const { return refused_; }
  RecordLayout layout() const;
  void set_frequency(uint32_t hz) { options_.frequency_hz = hz; }

 private:
  friend class CpuEvent;
  SamplingOptions options_;
  uint32_t dropped_ = 0;  // bits: index into the table of what may be dropped
  std::vector<std::string> refused_;
};

// Data bytes of one CPU's ring, a power of two: room for the samples of about half a second at this frequency
// and depth, and for a burst of sideband.
uint64_t RingBytes(uint32_t frequency_hz, uint32_t max_stack);

// What unprivileged locked memory allows for one CPU's ring (sysctl kernel.perf_event_mlock_kb, which counts
// the control page too); UINT64_MAX for a process with CAP_IPC_LOCK.
uint64_t RingBytesLimit();

// One sampling event on one CPU with its ring.
class CpuEvent {
 public:
  // Opens the event, disabled, and maps a ring of `ring_bytes`, a power of two. Where the system's limit of
  // locked memory forbids that, the ring is halved until it fits (see ring_bytes()), down to 8 KiB. Errors as
  // SamplingPlan::Probe; ResourceExhausted when no ring fits.
  static absl::StatusOr<std::unique_ptr<CpuEvent>> Open(uint32_t cpu, const SamplingPlan& plan,
                                                        uint64_t ring_bytes);
  ~CpuEvent();
  CpuEvent(const CpuEvent&) = delete;
  CpuEvent& operator=(const CpuEvent&) = delete;

  absl::Status Enable();
  absl::Status Disable();
  // Takes effect at once, without a gap.
  absl::Status SetFrequency(uint32_t hz);

  struct Counts {
    uint64_t value = 0;  // of the event: cycles, or nanoseconds for cpu-clock
    uint64_t enabled_ns = 0;
    uint64_t running_ns = 0;
    uint64_t lost = 0;  // records, since opening; 0 where the kernel does not say
  };
  // FailedPrecondition: the kernel has stopped this event for good.
  absl::StatusOr<Counts> Read() const;

  Ring* ring() { return ring_.get(); }
  uint64_t ring_bytes() const { return ring_bytes_; }
  // Readable when the ring's watermark was passed.
  int fd() const { return fd_; }
  uint32_t cpu() const { return cpu_; }

 private:
  CpuEvent() = default;

  uint32_t cpu_ = 0;
  bool period_in_ns_ = false;
  bool has_lost_ = false;
  perf_evsel* evsel_ = nullptr;
  int fd_ = -1;  // libperf's
  uint64_t id_ = 0;
  uint64_t ring_bytes_ = 0;
  std::unique_ptr<Ring> ring_;
};

// The CPUs of a list as /sys/devices/system/cpu/online has it ("0-3,8\n"), ascending. InvalidArgument names
// what is wrong.
absl::StatusOr<std::vector<uint32_t>> ParseCpuList(absl::string_view text);

}  // namespace xenprof::perf

#endif  // XENPROF_PERF_EVENTS_H_
