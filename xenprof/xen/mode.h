// What samples of this host can show: decided from what the host granted, corrected by what samples show.
#ifndef XENPROF_XEN_MODE_H_
#define XENPROF_XEN_MODE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "xenprof/base/types.h"
#include "xenprof/xen/host.h"
#include "xenprof/xen/vpmu.h"

namespace xenprof::xen {

struct ModeInputs {
  XenHost host;
  VpmuOutcome vpmu;
  std::optional<bool> kernel_has_callchain;  // KernelHasHypervisorCallchain()
  // Whether a hardware event (cycles) could be opened and counts; else samples come from cpu-clock.
  bool pmu_event_usable = false;
  std::string pmu_event_problem;  // why not, for people
};

struct ModeDecision {
  ModeKind kind = ModeKind::kUnspecified;
  std::string reason;
  std::string vpmu;  // "all", "hv", "self", "global" or ""

  bool operator==(const ModeDecision& other) const {
    return kind == other.kind && reason == other.reason && vpmu == other.vpmu;
  }
};

ModeDecision DecideMode(const ModeInputs& inputs);

// Holds a decision against the samples. Opening an event proves nothing: a CPU whose event never fires, and
// stacks that never have a second frame, are found here. Not for several threads at once.
class ModeConfirmer {
 public:
  struct Options {
    // Samples of Xen after which the absence of any caller frame counts as proof. Of the lab's Xen samples
    // one in five has a single frame only, so this many in a row by chance is out of the question.
    uint64_t xen_samples_needed = 50;
    // A CPU is silent when it gave nothing for this long although it was online. A tickless idle CPU halts
    // its counters, so an event in `cycles` may rightly rest while the others are busy, see SilentCpus().
    uint64_t silent_after_ns = 10'000'000'000;
  };

  explicit ModeConfirmer(ModeDecision expected) : ModeConfirmer(std::move(expected), Options()) {}
  ModeConfirmer(ModeDecision expected, const Options& options);

  // CLOCK_MONOTONIC_RAW. A CPU is watched from here until CpuOffline.
  void CpuOnline(uint32_t cpu, uint64_t now_ns);
  void CpuOffline(uint32_t cpu);

  // What one batch of samples of a CPU held: all samples; those whose ip lies in Xen; the most Xen frames in
  // one sample.
  struct Evidence {
    uint64_t samples = 0;
    uint64_t xen_samples = 0;
    uint32_t max_xen_frames = 0;
  };
  void Add(uint32_t cpu, const Evidence& evidence, uint64_t now_ns);

  // The mode in force; replaced when samples contradict it.
  const ModeDecision& current() const { return current_; }
  // True once samples have shown what `current` promises.
  bool confirmed() const { return confirmed_; }
  // A new decision when the samples so far ask for one, once per change.
  std::optional<ModeDecision> Evaluate();

  struct SilentCpu {
    uint32_t cpu = 0;
    uint64_t since_ns = 0;  // its last sample, or when it was first watched
    bool never = false;     // nothing ever came from it
    std::string reason;     // for people
  };
  // CPUs that are silent at `now_ns`, ascending.
  std::vector<SilentCpu> SilentCpus(uint64_t now_ns) const;

 private:
  struct Cpu {
    uint64_t watched_since_ns = 0;
    uint64_t last_sample_ns = 0;
    uint64_t samples = 0;
  };
  const Options options_;
  ModeDecision current_;
  bool confirmed_ = false;
  uint64_t samples_ = 0;
  uint64_t xen_samples_ = 0;
  uint32_t max_xen_frames_ = 0;
  std::map<uint32_t, Cpu> cpus_;
};

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_MODE_H_
