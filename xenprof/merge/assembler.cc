#include "xenprof/merge/assembler.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "xenprof/merge/hash.h"
#include "xenprof/merge/interner.h"
#include "xenprof/merge/process_table.h"

namespace xenprof::merge {
namespace {

constexpr size_t kRecycledBatches = 64;
constexpr size_t kNothingResolved = ~size_t{0};
// In the place of an address space's id: what follows is remembered from this node on.
constexpr uint64_t kFromNode = uint64_t{1} << 63;
// So many samples on, a stack is looked for: what that needs of memory is fetched meanwhile.
constexpr size_t kAhead = 8;

}  // namespace

// Ranges by address, for the kernel's image and modules.
class TextTable {
 public:
  void Set(std::vector<TextRange> ranges) {
    ranges_ = std::move(ranges);
    std::sort(ranges_.begin(), ranges_.end(), [](const auto& a, const auto& b) { return a.start < b.start; });
    for (size_t i = 0; i < ranges_.size(); ++i) {
      if (ranges_[i].end == 0) ranges_[i].end = i + 1 < ranges_.size() ? ranges_[i + 1].start : ~uint64_t{0};
    }
    mapping_.assign(ranges_.size(), 0);
  }
  void ForgetMappings() { mapping_.assign(ranges_.size(), 0); }
  void Add(TextRange range) {
    std::vector<TextRange> ranges = ranges_;
    ranges.push_back(std::move(range));
    Set(std::move(ranges));
  }
  void Remove(uint64_t start) {
    std::vector<TextRange> ranges = ranges_;
    std::erase_if(ranges,
                  [&](const TextRange& range) { return range.start == start && range.name == "[bpf]"; });
    if (ranges.size() != ranges_.size()) Set(std::move(ranges));
  }
  // Index of the range `address` is in, or -1.
  int Find(uint64_t address) const {
    auto after = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                  [](uint64_t a, const TextRange& range) { return a < range.start; });
    if (after == ranges_.begin()) return -1;
    const int at = static_cast<int>(after - ranges_.begin()) - 1;
    return address < ranges_[at].end ? at : -1;
  }
  const TextRange& range(int at) const { return ranges_[at]; }
  uint32_t& mapping(int at) { return mapping_[at]; }  // id in this chunk, 0: none yet

 private:
  std::vector<TextRange> ranges_;
  std::vector<uint32_t> mapping_;
};

class Assembler::Impl {
 public:
  void SetKernelText(std::vector<TextRange> ranges) { kernel_.Set(std::move(ranges)); }
  void SetHypervisorText(TextRange range) {
    hypervisor_ = std::move(range);
    hypervisor_mapping_ = 0;
  }

  void StartCpu(uint32_t number, uint64_t from_ns) {
    Cpu& cpu = cpus_[number];
    cpu.counted_until_ns = cpu.sampled_until_ns = from_ns;
  }

  void AddBatch(CpuBatch batch) {
    Cpu& cpu = cpus_[batch.cpu];
    if (cpu.counted_until_ns == 0 && !batch.samples.empty())
      cpu.counted_until_ns = batch.samples.front().time_ns;
    for (perf::SidebandEvent& event : batch.sideband) {
      if (event.cpu == ~0u) event.cpu = batch.cpu;
      sideband_.push_back(std::move(event));
    }
    batch.sideband.clear();
    waiting_ += batch.samples.size();
    Count(batch, Incident::Kind::kBadRecord, batch.bad_records, batch.first_bad_record);
    Count(batch, Incident::Kind::kUnknownRecord, batch.unknown_records, "");
    Count(batch, Incident::Kind::kQueueFull, batch.shed_samples, "");
    cpu.sampled_until_ns = std::max(cpu.sampled_until_ns, batch.drained_until_ns);
    if (batch.samples.empty()) {
      Recycle(std::move(batch));
      return;
    }
    Waiting waiting;
    waiting.batch = std::move(batch);
    cpu.waiting.push_back(std::move(waiting));
  }

  void Advance(uint64_t until_ns, Window* window);
  Tables StartChunk() {
    Tables old = interner_.Reset();
    ++chunk_;
    kernel_.ForgetMappings();
    file_mappings_.clear();
    kept_files_.clear();
    kernel_mapping_ = hypervisor_mapping_ = guest_kernel_mapping_ = guest_user_mapping_ = unknown_mapping_ =
        0;
    for (auto& [number, cpu] : cpus_) {
      for (Waiting& waiting : cpu.waiting)
        std::fill(waiting.resolved.begin(), waiting.resolved.end(), Resolved());
    }
    return old;
  }

  size_t memory_bytes() const {
    size_t bytes = interner_.memory_bytes() + processes_.memory_bytes() +
                   sideband_.capacity() * sizeof(sideband_[0]) + file_mappings_.capacity() * 24;
    for (const auto& [number, cpu] : cpus_) {
      for (const Waiting& waiting : cpu.waiting) {
        bytes += waiting.batch.addresses.capacity() * 8 + waiting.batch.stacks.capacity() * sizeof(RawStack) +
                 waiting.batch.samples.capacity() * sizeof(RawSample);
      }
    }
    return bytes;
  }

  CpuBatch TakeRecycled() {
    if (recycled_.empty()) return {};
    CpuBatch batch = std::move(recycled_.back());
    recycled_.pop_back();
    return batch;
  }

  ProcessTable processes_;
  Interner interner_;
  std::vector<Incident> incidents_;
  size_t waiting_ = 0;
  bool keep_unmapped_callers_ = false;
  std::function<void(const Mapping&, uint32_t, uint64_t)> on_new_mapping_;
  std::function<void()> on_kernel_symbols_;

 private:
  // What a batch's stack came out as, and in which address space that was.
  struct Resolved {
    uint64_t space = kNothingResolved;
    uint32_t stack = 0;
  };
  struct Waiting {
    CpuBatch batch;
    size_t next = 0;  // first sample not yet taken
    std::vector<Resolved> resolved;
  };
  struct Cpu {
    std::deque<Waiting> waiting;
    uint64_t sampled_until_ns = 0;  // by what its batches say
    uint64_t counted_until_ns = 0;  // of that, what windows have been told; 0: not sampled
    uint64_t throttled_since_ns = 0;
    // The last task, since the next sample is mostly its again.
    uint32_t last_pid = ~0u, last_tid = ~0u, last_task = 0;
  };
  // Entries [next, end) of deferred_: those of one CPU.
  struct Run {
    size_t next, end;
  };
  // A sample of a process about which there is news in this window: taken in its turn among the news.
  struct Deferred {
    uint64_t time_ns;
    CpuColumns* columns;
    size_t row;
    Waiting* waiting;
    const RawSample* sample;
  };

  void Count(const CpuBatch& batch, Incident::Kind kind, uint64_t count, const std::string& text) {
    if (count == 0) return;
    incidents_.push_back({kind, batch.cpu, batch.drained_until_ns, batch.drained_until_ns, count, text});
  }
  void Recycle(CpuBatch batch) {
    if (recycled_.size() < kRecycledBatches) recycled_.push_back(std::move(batch));
  }

  uint32_t TaskOf(uint32_t pid, uint32_t tid, uint64_t time_ns);
  // `of_process` is that of the sample's process, as of the sample's time.
  uint32_t StackOf(Waiting& waiting, uint32_t index, const AddressSpace& of_process);
  uint32_t Intern(const CpuBatch& batch, const RawStack& raw, const AddressSpace* space);
  uint32_t MappingOf(const MappedFile& file, const MappedRange& range, uint32_t pid);
  uint32_t NewMapping(Mapping mapping) {
    interner_.mutable_tables().mappings.push_back(std::move(mapping));
    return static_cast<uint32_t>(interner_.tables().mappings.size() - 1);
  }
  uint32_t HypervisorMapping();
  uint32_t KernelMapping(uint64_t address);
  uint32_t NamedMapping(uint32_t* id, FrameKind kind, const char* name);
  void ApplyEvent(const perf::SidebandEvent& event, Window* window);

  absl::flat_hash_map<uint32_t, Cpu> cpus_;
  std::vector<perf::SidebandEvent> sideband_;
  // Of Advance, which needs their memory again and again: sideband by time and index, and what waits for it.
  std::vector<std::pair<uint64_t, uint32_t>> turns_;
  std::vector<Deferred> deferred_;
  std::vector<Run> runs_;
  std::vector<std::pair<uint64_t, size_t>> heap_;  // time of a run's next, run
  std::vector<CpuBatch> recycled_;
  TextTable kernel_;
  TextRange hypervisor_{0, 0, "[xen]", ""};

  // Of this chunk.
  uint64_t chunk_ = 1;
  absl::flat_hash_map<const MappedFile*, uint32_t> file_mappings_;
  std::vector<std::shared_ptr<const MappedFile>> kept_files_;
  uint32_t kernel_mapping_ = 0, hypervisor_mapping_ = 0, guest_kernel_mapping_ = 0, guest_user_mapping_ = 0,
           unknown_mapping_ = 0;
};

uint32_t Assembler::Impl::NamedMapping(uint32_t* id, FrameKind kind, const char* name) {
  if (*id == 0) {
    Mapping mapping;
    mapping.kind = kind;
    mapping.name = name;
    *id = NewMapping(std::move(mapping));
  }
  return *id;
}

uint32_t Assembler::Impl::HypervisorMapping() {
  if (hypervisor_mapping_ == 0) {
    Mapping mapping;
    mapping.kind = FrameKind::kHypervisor;
    mapping.name = hypervisor_.name;
    mapping.build_id = hypervisor_.build_id;
    mapping.start = hypervisor_.start;
    mapping.end = hypervisor_.end;
    hypervisor_mapping_ = NewMapping(std::move(mapping));
  }
  return hypervisor_mapping_;
}

uint32_t Assembler::Impl::KernelMapping(uint64_t address) {
  const int at = kernel_.Find(address);
  if (at < 0) return NamedMapping(&kernel_mapping_, FrameKind::kDom0Kernel, "[kernel]");
  if (kernel_.mapping(at) == 0) {
    const TextRange& range = kernel_.range(at);
    Mapping mapping;
    mapping.kind = FrameKind::kDom0Kernel;
    mapping.name = range.name;
    mapping.build_id = range.build_id;
    mapping.start = range.start;
    mapping.end = range.end;
    kernel_.mapping(at) = NewMapping(std::move(mapping));
  }
  return kernel_.mapping(at);
}

uint32_t Assembler::Impl::MappingOf(const MappedFile& file, const MappedRange& range, uint32_t pid) {
  auto [entry, added] = file_mappings_.try_emplace(&file, 0);
  if (added) {
    Mapping mapping;
    mapping.kind = FrameKind::kDom0User;
    mapping.name = file.name;
    mapping.build_id = file.build_id;
    mapping.is_file = file.is_file;
    mapping.deleted = file.deleted;
    mapping.pid = file.pid;
    entry->second = NewMapping(mapping);
    // The address of `file` stands for it until the chunk ends.
    kept_files_.push_back(range.file);
    if (on_new_mapping_) on_new_mapping_(mapping, pid, range.start);
  }
  return entry->second;
}

uint32_t Assembler::Impl::TaskOf(uint32_t pid, uint32_t tid, uint64_t time_ns) {
  if (pid == 0) return 0;
  Thread& thread = processes_.ThreadOf(pid, tid, time_ns);
  if (thread.chunk != chunk_) {
    thread.chunk = chunk_;
    thread.task = static_cast<uint32_t>(interner_.tables().tasks.size());
    interner_.mutable_tables().tasks.push_back(
        {thread.pid, thread.tid, thread.comm, thread.start_ns, thread.kernel_thread});
  }
  return thread.task;
}

uint32_t Assembler::Impl::Intern(const CpuBatch& batch, const RawStack& raw, const AddressSpace* space) {
  const uint64_t* addresses = batch.addresses.data() + raw.first_address;
  const bool guest = raw.origin == Origin::kGuestKernel || raw.origin == Origin::kGuestUser;
  const int kernel_end = raw.hypervisor_frames + raw.kernel_frames;
  int count = kernel_end + raw.user_frames;
  const MappedRange* ranges[MergedStack::kMaxFrames];
  bool cut = false;
  if (space != nullptr) {
    for (int i = kernel_end; i < count; ++i) {
      // The first user frame is where the kernel was entered from, a page's first byte as well as any other;
      // what follows are return addresses, which may be the first byte behind their mapping.
      const bool exact = i == kernel_end;
      const MappedRange* range = space->FindSampled(exact ? addresses[i] : addresses[i] - 1);
      if (range == nullptr) range = space->FindSampled(exact ? addresses[i] - 1 : addresses[i]);
      ranges[i] = range;
      // Where nothing executable is mapped nobody returns to: the program keeps no frame pointers and the
      // kernel went on through its data. This address and what follows are no callers.
      cut = range == nullptr && !exact && !space->ranges.empty() && !keep_unmapped_callers_;
      if (cut) count = i;
    }
  }
  // Where each frame is first, then the frames: what they need of memory is fetched meanwhile.
  uint32_t mappings[MergedStack::kMaxFrames];
  uint64_t places[MergedStack::kMaxFrames];
  for (int i = kernel_end; i < count; ++i) {
    places[i] = addresses[i];
    if (guest) {
      mappings[i] = NamedMapping(&guest_user_mapping_, FrameKind::kGuestUser, "[guest user]");
    } else if (ranges[i] == nullptr) {
      mappings[i] = NamedMapping(&unknown_mapping_, FrameKind::kDom0User, "[unknown]");
    } else {
      mappings[i] = MappingOf(*ranges[i]->file, *ranges[i], raw.pid);
      if (ranges[i]->file->is_file) places[i] = addresses[i] - ranges[i]->start + ranges[i]->file_offset;
    }
    interner_.PrefetchFrame(mappings[i], places[i]);
  }
  uint32_t node = 0;
  if (cut) {
    node = interner_.NodeOf(
        0, interner_.FrameOf(NamedMapping(&unknown_mapping_, FrameKind::kDom0User, "[unknown]"), 0));
  }
  for (int i = count - 1; i >= kernel_end; --i)
    node = interner_.NodeOf(node, interner_.FrameOf(mappings[i], places[i]));
  if (kernel_end == 0) return interner_.StackOf(node, raw.origin, raw.flags);

  const auto mapping_of = [&](int i) {
    if (i < raw.hypervisor_frames) return HypervisorMapping();
    return guest ? NamedMapping(&guest_kernel_mapping_, FrameKind::kGuestKernel, "[guest kernel]")
                 : KernelMapping(addresses[i]);
  };
  mappings[0] = mapping_of(0);
  interner_.PrefetchFrame(mappings[0], addresses[0]);
  if (kernel_end > 1) {
    // The same way through kernel and Xen from the same place of a program, whichever process runs it.
    // Without the leaf, which differs where the callers do not.
    const uint64_t head = static_cast<uint64_t>(std::max<int>(raw.hypervisor_frames, 1)) << 1 | guest;
    const Hash128 hash = HashWords(addresses + 1, static_cast<size_t>(kernel_end - 1), head, HashSeed());
    const uint64_t from = kFromNode | node;
    if (!interner_.Recall(hash, from, &node)) {
      for (int i = 1; i < kernel_end; ++i) {
        mappings[i] = mapping_of(i);
        interner_.PrefetchFrame(mappings[i], addresses[i]);
      }
      for (int i = kernel_end - 1; i > 0; --i)
        node = interner_.NodeOf(node, interner_.FrameOf(mappings[i], addresses[i]));
      interner_.Remember(hash, from, node);
    }
  }
  node = interner_.NodeOf(node, interner_.FrameOf(mappings[0], addresses[0]));
  return interner_.StackOf(node, raw.origin, raw.flags);
}

uint32_t Assembler::Impl::StackOf(Waiting& waiting, uint32_t index, const AddressSpace& of_process) {
  const RawStack& raw = waiting.batch.stacks[index];
  const bool has_user_frames = raw.user_frames > 0 && raw.origin != Origin::kGuestUser;
  const AddressSpace* space = has_user_frames ? &of_process : nullptr;
  const uint64_t space_id = has_user_frames ? of_process.id : 0;
  Resolved& resolved = waiting.resolved[index];
  if (resolved.space == space_id) return resolved.stack;
  const Hash128 hash{raw.hash[0], raw.hash[1]};
  uint32_t stack;
  if (!interner_.Recall(hash, space_id, &stack)) {
    stack = Intern(waiting.batch, raw, space);
    interner_.Remember(hash, space_id, stack);
  }
  resolved = {space_id, stack};
  return stack;
}

void Assembler::Impl::ApplyEvent(const perf::SidebandEvent& event, Window* window) {
  using Type = perf::SidebandEvent::Type;
  const int64_t cpu = event.cpu;
  switch (event.type) {
    case Type::kMmap:
    case Type::kComm:
    case Type::kFork:
    case Type::kExit:
      processes_.Apply(event);
      return;
    case Type::kLost:
    case Type::kLostSamples:
      window->incidents.push_back(
          {Incident::Kind::kLost, cpu, event.time_ns, event.time_ns, event.count, ""});
      return;
    case Type::kThrottle:
      cpus_[event.cpu].throttled_since_ns = event.time_ns;
      return;
    case Type::kUnthrottle: {
      uint64_t& since = cpus_[event.cpu].throttled_since_ns;
      if (since != 0)
        window->incidents.push_back({Incident::Kind::kThrottled, cpu, since, event.time_ns, 0, ""});
      since = 0;
      return;
    }
    case Type::kKsymbol:
      if (event.unregister) {
        kernel_.Remove(event.address);
      } else if (event.length > 0) {
        kernel_.Add({event.address, event.address + event.length, "[bpf]", ""});
      }
      if (on_kernel_symbols_) on_kernel_symbols_();
      return;
    case Type::kOther:
    case Type::kUnknown:
      return;
  }
}

void Assembler::Impl::Advance(uint64_t until_ns, Window* window) {
  // Sideband of all CPUs in the order of time. A record without a stamp (synthesised by perf) comes first.
  turns_.clear();
  for (uint32_t i = 0; i < sideband_.size(); ++i) {
    if (sideband_[i].time_ns < until_ns) turns_.push_back({sideband_[i].time_ns, i});
  }
  std::sort(turns_.begin(), turns_.end());
  absl::flat_hash_set<uint32_t> news;
  for (const auto& [time_ns, index] : turns_) {
    const perf::SidebandEvent& event = sideband_[index];
    switch (event.type) {
      case perf::SidebandEvent::Type::kMmap:
      case perf::SidebandEvent::Type::kComm:
      case perf::SidebandEvent::Type::kFork:
        news.insert(event.pid);
        break;
      default:
        break;
    }
  }

  std::vector<uint32_t> numbers;
  for (const auto& [number, cpu] : cpus_) numbers.push_back(number);
  std::sort(numbers.begin(), numbers.end());
  for (uint32_t number : numbers) {
    auto at = std::lower_bound(window->cpus.begin(), window->cpus.end(), number,
                               [](const CpuColumns& columns, uint32_t n) { return columns.cpu < n; });
    if (at == window->cpus.end() || at->cpu != number) {
      CpuColumns columns;
      columns.cpu = number;
      window->cpus.insert(at, std::move(columns));
    }
  }

  auto columns = window->cpus.begin();
  for (uint32_t number : numbers) {
    while (columns->cpu != number) ++columns;
    Cpu& cpu = cpus_[number];
    cpu.last_pid = cpu.last_tid = ~0u;
    const size_t first_deferred = deferred_.size();
    // Of the process of the last sample, which most likely is that of the next.
    uint32_t known_pid = ~0u;
    bool has_news = false;
    const AddressSpace* space = nullptr;
    for (Waiting& waiting : cpu.waiting) {
      const std::vector<RawSample>& samples = waiting.batch.samples;
      if (waiting.next == 0) waiting.resolved.resize(waiting.batch.stacks.size());
      while (waiting.next < samples.size() && samples[waiting.next].time_ns < until_ns) {
        const RawSample& sample = samples[waiting.next++];
        if (waiting.next + kAhead < samples.size()) {
          const RawStack& soon = waiting.batch.stacks[samples[waiting.next + kAhead].stack];
          interner_.PrefetchRecall({soon.hash[0], soon.hash[1]});
        }
        columns->time_ns.push_back(sample.time_ns);
        if (space == nullptr || sample.pid != known_pid) {
          known_pid = sample.pid;
          has_news = news.contains(known_pid);
          space = &processes_.SpaceOf(known_pid);
        }
        if (has_news) {
          deferred_.push_back({sample.time_ns, &*columns, columns->stack.size(), &waiting, &sample});
          columns->stack.push_back(0);
          columns->task.push_back(0);
          continue;
        }
        columns->stack.push_back(StackOf(waiting, sample.stack, *space));
        if (sample.pid != cpu.last_pid || sample.tid != cpu.last_tid) {
          cpu.last_task = TaskOf(sample.pid, sample.tid, sample.time_ns);
          cpu.last_pid = sample.pid;
          cpu.last_tid = sample.tid;
        }
        columns->task.push_back(cpu.last_task);
      }
      if (waiting.next < samples.size()) break;
    }
    runs_.push_back({first_deferred, deferred_.size()});
  }

  // Each CPU's are ascending, but for a late one: merged, of one time in the order of CPUs.
  heap_.clear();
  for (size_t run = 0; run < runs_.size(); ++run) {
    const auto begin = deferred_.begin() + runs_[run].next, end = deferred_.begin() + runs_[run].end;
    const auto earlier = [](const Deferred& a, const Deferred& b) { return a.time_ns < b.time_ns; };
    if (!std::is_sorted(begin, end, earlier)) std::stable_sort(begin, end, earlier);
    if (begin != end) heap_.push_back({begin->time_ns, run});
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  auto turn = turns_.begin();
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    Run& run = runs_[heap_.back().second];
    const Deferred& entry = deferred_[run.next++];
    if (run.next < run.end) {
      heap_.back().first = deferred_[run.next].time_ns;
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    } else {
      heap_.pop_back();
    }
    for (; turn != turns_.end() && turn->first <= entry.time_ns; ++turn)
      ApplyEvent(sideband_[turn->second], window);
    entry.columns->stack[entry.row] =
        StackOf(*entry.waiting, entry.sample->stack, processes_.SpaceOf(entry.sample->pid));
    entry.columns->task[entry.row] = TaskOf(entry.sample->pid, entry.sample->tid, entry.time_ns);
  }
  for (; turn != turns_.end(); ++turn) ApplyEvent(sideband_[turn->second], window);
  std::erase_if(sideband_, [&](const perf::SidebandEvent& event) { return event.time_ns < until_ns; });
  deferred_.clear();
  runs_.clear();

  for (uint32_t number : numbers) {
    Cpu& cpu = cpus_[number];
    while (!cpu.waiting.empty() && cpu.waiting.front().next == cpu.waiting.front().batch.samples.size()) {
      waiting_ -= cpu.waiting.front().batch.samples.size();
      Recycle(std::move(cpu.waiting.front().batch));
      cpu.waiting.pop_front();
    }
  }
  // The kernel may stamp a record a little after it stamped its neighbour (an interrupt in between).
  for (CpuColumns& column : window->cpus) {
    if (std::is_sorted(column.time_ns.begin(), column.time_ns.end())) continue;
    std::vector<uint32_t> order(column.time_ns.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return column.time_ns[a] < column.time_ns[b]; });
    CpuColumns sorted = column;
    for (size_t i = 0; i < order.size(); ++i) {
      sorted.time_ns[i] = column.time_ns[order[i]];
      sorted.stack[i] = column.stack[order[i]];
      sorted.task[i] = column.task[order[i]];
    }
    column = std::move(sorted);
  }
  for (const CpuColumns& column : window->cpus) {
    // A latecomer: the window reaches back to it.
    if (!column.time_ns.empty()) window->start_ns = std::min(window->start_ns, column.time_ns.front());
  }
  for (Incident& incident : incidents_) window->incidents.push_back(std::move(incident));
  incidents_.clear();
  columns = window->cpus.begin();
  for (uint32_t number : numbers) {
    while (columns->cpu != number) ++columns;
    Cpu& cpu = cpus_[number];
    const uint64_t sampled = std::min(cpu.sampled_until_ns, until_ns);
    if (cpu.counted_until_ns != 0 && sampled > cpu.counted_until_ns) {
      columns->sampled_ns += sampled - cpu.counted_until_ns;
      cpu.counted_until_ns = sampled;
    }
  }
  // A span still open at the window's end is told in parts.
  for (uint32_t number : numbers) {
    uint64_t& since = cpus_[number].throttled_since_ns;
    if (since != 0 && since < until_ns) {
      window->incidents.push_back({Incident::Kind::kThrottled, number, since, until_ns, 0, ""});
      since = until_ns;
    }
  }
  window->end_ns = until_ns;
  processes_.Forget(until_ns);
}

Assembler::Assembler() : impl_(std::make_unique<Impl>()) {}
Assembler::~Assembler() = default;

void Assembler::SetKernelText(std::vector<TextRange> ranges) { impl_->SetKernelText(std::move(ranges)); }
void Assembler::SetHypervisorText(TextRange range) { impl_->SetHypervisorText(std::move(range)); }
void Assembler::AddProcess(uint32_t pid, uint32_t tid, absl::string_view comm, bool kernel_thread) {
  impl_->processes_.AddThread(pid, tid, comm, kernel_thread);
}
void Assembler::AddMapping(const perf::SidebandEvent& mmap) { impl_->processes_.Apply(mmap); }
void Assembler::KeepUnmappedCallers(bool keep) { impl_->keep_unmapped_callers_ = keep; }
void Assembler::OnNewMapping(std::function<void(const Mapping&, uint32_t, uint64_t)> callback) {
  impl_->on_new_mapping_ = std::move(callback);
}
void Assembler::OnKernelSymbols(std::function<void()> callback) {
  impl_->on_kernel_symbols_ = std::move(callback);
}
void Assembler::StartCpu(uint32_t cpu, uint64_t from_ns) { impl_->StartCpu(cpu, from_ns); }
void Assembler::AddBatch(CpuBatch batch) { impl_->AddBatch(std::move(batch)); }
void Assembler::AddIncident(Incident incident) { impl_->incidents_.push_back(std::move(incident)); }
void Assembler::Advance(uint64_t until_ns, Window* window) { impl_->Advance(until_ns, window); }
CpuBatch Assembler::TakeRecycled() { return impl_->TakeRecycled(); }
const Tables& Assembler::tables() const { return impl_->interner_.tables(); }
Tables Assembler::StartChunk() { return impl_->StartChunk(); }
size_t Assembler::waiting_samples() const { return impl_->waiting_; }
size_t Assembler::memory_bytes() const { return impl_->memory_bytes(); }

}  // namespace xenprof::merge
