// The events and readers of all CPUs: opened, watched, reopened, closed. Everything here runs on the
// recorder's thread.
#ifndef DAEMON_COLLECTOR_H_
#define DAEMON_COLLECTOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/cpu_reader.h"
#include "daemon/event_fd.h"
#include "xenprof/merge/assembler.h"
#include "xenprof/perf/events.h"

namespace xenprof::daemon {

struct CollectorOptions {
  std::string event = "auto";  // "auto", "cycles", "cpu-clock"
  uint32_t frequency_hz = 97;
  uint32_t max_stack = 127;
  uint64_t ring_bytes = 0;  // 0: by frequency and depth
  int reader_nice = 0;
  bool timer_on_xen = false;  // cpu-clock samples need the interrupted address beside their own
  merge::MergeOptions merge;
  std::string online_file = "/sys/devices/system/cpu/online";
};

class Collector {
 public:
  // Batches go to `assembler`; `recorder` is signalled when some wait. Both outlive this.
  Collector(const CollectorOptions& options, merge::Assembler* assembler, EventFd* recorder);
  ~Collector();

  // Before Open(): this kernel runs on Xen.
  void SetOnXen(bool on_xen) { options_.timer_on_xen = on_xen; }
  // Opens and starts the event on every online CPU. A CPU that refuses is noted (see `problem`); an error
  // only when none gives in.
  absl::Status Open();
  // Stops all events, takes what is left in the rings.
  void Close();
  bool open() const { return !cpus_.empty() && open_; }

  // Takes all batches that wait, for the assembler.
  void Collect();
  // Asks all readers that have not handed on everything before `until_ns`; true when all have.
  bool RequestDrain(uint64_t until_ns);
  // Every open CPU's records stamped before this are with the assembler (after Collect).
  uint64_t DrainedUntilNs() const;

  // Compares with the CPUs online now: closes what went, opens what came, reopens events that died. To be
  // called every second or so.
  void CheckCpus();
  // Looks at CPUs that gave nothing since the last call, a block's time ago.
  void CheckSilence();
  // A while after opening: "auto" goes over to cpu-clock when no CPU got a sample from the PMU. Returns what
  // was done, for people; empty when all is well.
  std::string CheckDelivery();

  // Returns the previous frequency. Reopens the events when the ring would be too small.
  absl::StatusOr<uint32_t> SetFrequency(uint32_t hz);
  void SetShedding(bool shedding);
  void SetMergeOptions(const merge::MergeOptions& options);

  // True once after events were closed and opened again while their CPU was at work.
  bool TakeGap() { return std::exchange(gap_, false); }

  // Time of [start_ns, end_ns) in which the CPU's event was open. Forgets what lay before start_ns.
  uint64_t OpenNs(uint32_t cpu, uint64_t start_ns, uint64_t end_ns);

  struct CpuState {
    uint32_t cpu = 0;
    bool online = false;
    uint64_t samples = 0, lost = 0, throttled_ns = 0, shed = 0, last_sample_ns = 0;
    std::string problem;
  };
  std::vector<CpuState> States() const;

  struct Evidence {
    uint32_t cpu = 0;
    uint64_t samples = 0, hypervisor_samples = 0, guest_samples = 0;
    uint32_t most_hypervisor_frames = 0;
  };
  // Since opening, per CPU.
  std::vector<Evidence> Evidences() const;

  // What is in force. After Open.
  const perf::SamplingPlan& plan() const { return plan_; }
  uint64_t ring_bytes() const { return ring_bytes_; }
  size_t cpu_count() const { return cpus_.size(); }
  // Said once each, for the log and the chunk: a frequency that was lowered, rings that were shrunk.
  std::vector<std::string> TakeNotes() { return std::exchange(notes_, {}); }

 private:
  struct Cpu {
    std::unique_ptr<perf::CpuEvent> event;
    std::unique_ptr<CpuReader> reader;
    uint64_t open_since_ns = 0;
    uint64_t closed_at_ns = 0;                         // 0: never open
    std::vector<std::pair<uint64_t, uint64_t>> spans;  // closed ones not yet forgotten
    bool online = true;
    std::string problem;
    uint64_t retry_at_ns = 0;
    // Of readers that are gone.
    uint64_t samples = 0, lost = 0, throttled_ns = 0, shed = 0, last_sample_ns = 0;
    uint64_t sideband_shed_told = 0;
    // For CheckSilence.
    uint64_t checked_samples = 0;
    bool has_baseline = false;
    uint64_t baseline_value = 0, silent_since_ns = 0;
  };

  absl::StatusOr<std::vector<uint32_t>> OnlineCpus() const;
  absl::Status Probe(uint32_t cpu);
  uint64_t WantedRingBytes() const;
  absl::Status OpenCpu(uint32_t number, Cpu* cpu);
  void CloseCpu(uint32_t number, Cpu* cpu);
  // Closes and opens again; the time between is a gap with this reason.
  void Reopen(uint32_t number, Cpu* cpu, const std::string& reason);
  void Collect(uint32_t number, Cpu* cpu);
  void Tell(merge::Incident::Kind kind, int64_t cpu, uint64_t start_ns, uint64_t end_ns, uint64_t count,
            std::string text);

  CollectorOptions options_;
  merge::Assembler* const assembler_;
  EventFd* const recorder_;
  perf::SamplingPlan plan_;
  uint64_t ring_bytes_ = 0;
  bool open_ = false;
  bool shedding_ = false;
  bool shrink_told_ = false;
  bool gap_ = false;
  std::map<uint32_t, Cpu> cpus_;  // every CPU that was ever online
  std::vector<std::string> notes_;
};

}  // namespace xenprof::daemon

#endif  // DAEMON_COLLECTOR_H_
