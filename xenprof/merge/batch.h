// What one CPU's reader makes of its ring: merged stacks, still as addresses, and the sideband events among
// them.
#ifndef XENPROF_MERGE_BATCH_H_
#define XENPROF_MERGE_BATCH_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "xenprof/base/types.h"
#include "xenprof/perf/record.h"

namespace xenprof::merge {

// A stack of one sample as addresses, leaf first: hypervisor frames, then kernel frames, then user frames.
// Kinds are dom0's, or a guest's when the origin is guest_kernel or guest_user.
struct RawStack {
  uint32_t first_address;  // index into CpuBatch::addresses
  uint8_t hypervisor_frames;
  uint8_t kernel_frames;
  uint8_t user_frames;
  Origin origin;
  uint8_t flags;  // StackFlags
  uint32_t pid;   // whose address space the user frames are in; 0 when there are none
  // 128 bits over kinds, origin, flags and addresses (not the pid), with a seed of this process.
  uint64_t hash[2];
};

struct RawSample {
  uint64_t time_ns;
  uint32_t pid;
  uint32_t tid;
  uint32_t stack;  // index into CpuBatch::stacks
};

// Not thread safe; handed from a reader to the assembler as a whole.
struct CpuBatch {
  uint32_t cpu = 0;
  std::vector<uint64_t> addresses;
  std::vector<RawStack> stacks;
  std::vector<RawSample> samples;
  std::vector<perf::SidebandEvent> sideband;
  // Every record of this CPU stamped earlier than this has been handed on.
  uint64_t drained_until_ns = 0;
  uint64_t bad_records = 0;  // contradicted themselves, see `first_bad_record`
  uint64_t unknown_records = 0;
  std::string first_bad_record;  // the decoder's words for the first one
  uint64_t shed_samples = 0;     // dropped here because the queue to the assembler was full

  bool empty() const {
    return samples.empty() && sideband.empty() && bad_records == 0 && unknown_records == 0 &&
           shed_samples == 0;
  }
  void Clear();
};

// What merging must know of the host.
struct MergeOptions {
  // Samples come from a Xen and a kernel with hypervisor stacks: cpumode then tells dom0 from the rest inside
  // Xen.
  bool hypervisor_stacks = false;
  // vPMU mode `hv` or `self`: the PMU counts only while a dom0 vCPU is current, so Xen's time is dom0's.
  bool dom0_counted_only = false;
  // The event is a timer of a kernel that runs on Xen. If the PMU sampled a guest on that CPU before, the
  // guest's mode and address are still in the page shared with Xen, and the kernel (perf_guest_state) takes
  // them for every later sample of the timer, as it does on a dom0 with a vPMU page and no PMU from the
  // start: such a sample has no callers, its address is the register's (perf::Sample::interrupted_ip);
  // without that the markers of its chain tell the mode.
  bool software_clock_on_xen = false;
  // A PV dom0 under a PMU interrupt has no frame pointer to walk user code with.
  bool pv_dom0 = false;
  // The kernel's limit of frames in one chain (sysctl kernel.perf_event_max_stack or the attribute); a chain
  // that long is flagged truncated.
  uint32_t max_stack = 127;
  // Callers in user code that no program can return to stay as they were sampled; else the first of them
  // becomes address 0 and ends the stack. See Assembler::KeepUnmappedCallers, which knows the mappings, too.
  bool keep_unmapped_callers = false;
  // Address ranges [first, second) of Xen's idle functions, ascending; empty: not known.
  std::vector<std::pair<uint64_t, uint64_t>> xen_idle;
};

// The frames of one sample and whose time it was.
struct MergedStack {
  // kMaxFrames: sample_max_stack is at most 127 here, sysctl allows more; one more for a leaf put in front.
  static constexpr int kMaxFrames = 255;
  uint64_t addresses[kMaxFrames];
  int hypervisor_frames = 0;
  int kernel_frames = 0;
  int user_frames = 0;
  Origin origin = Origin::kUnknown;
  uint8_t flags = 0;

  int size() const { return hypervisor_frames + kernel_frames + user_frames; }
};

// xen-facts.md section 2, "Telling the frames apart", in one place. Total: every sample gives a stack, an odd
// one gives an unknown origin.
void MergeStack(const perf::Sample& sample, const MergeOptions& options, MergedStack* stack);

// Turns records of one CPU into a batch. Used by ring readers and by the importer alike.
class BatchBuilder {
 public:
  BatchBuilder(uint32_t cpu, const MergeOptions& options);
  ~BatchBuilder();
  BatchBuilder(const BatchBuilder&) = delete;
  BatchBuilder& operator=(const BatchBuilder&) = delete;

  void SetOptions(const MergeOptions& options);  // from the next sample on

  // One whole record, aligned to 8 bytes. Bad ones are counted in the batch, never fatal.
  void AddRecord(absl::Span<const uint8_t> record, const perf::RecordLayout& layout);
  void AddSample(const perf::Sample& sample);
  void AddSideband(perf::SidebandEvent event) { batch_.sideband.push_back(std::move(event)); }

  // Samples held so far: a reader hands on when this or bytes() passes its bound.
  size_t samples() const { return batch_.samples.size(); }
  size_t bytes() const;

  // Hands the batch over and begins an empty one; `recycled` lends its memory.
  CpuBatch Take(uint64_t drained_until_ns, CpuBatch recycled = {});

  // Evidence for the collection mode, since construction.
  struct Evidence {
    uint64_t samples = 0;
    uint64_t hypervisor_samples = 0;      // leaf in Xen
    uint32_t most_hypervisor_frames = 0;  // in one sample
    uint64_t guest_samples = 0;
  };
  const Evidence& evidence() const { return evidence_; }

 private:
  struct Slot {
    uint32_t generation;  // of the batch it belongs to; any other: free
    uint32_t stack;
  };
  void GrowTable();
  uint32_t Intern(uint32_t pid);

  MergeOptions options_;
  CpuBatch batch_;
  std::vector<Slot> table_;  // open addressing, power of two
  uint32_t generation_ = 1;
  MergedStack scratch_;
  perf::SidebandEvent event_;
  Evidence evidence_;
};

}  // namespace xenprof::merge

#endif  // XENPROF_MERGE_BATCH_H_
