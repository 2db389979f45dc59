#include "synthetic.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "xenprof/perf/perf_data.h"

namespace xenprof::bench {
namespace {

constexpr uint32_t kProcesses = 16;
constexpr uint64_t kXenText = 0xffff82d040200000;
constexpr uint64_t kProgramText = 0x555500000000;
constexpr uint64_t kLibraryText = 0x7f0000000000;
constexpr uint64_t kTextBytes = 0x400000;

// Call chains as programs have them: a tree in which callers are shared and leaves are many.
std::vector<uint64_t> Chain(uint32_t stack, int depth, bool hypervisor, uint64_t kernel_text) {
  std::mt19937_64 random(stack);
  const int user = std::max(1, depth / 2), kernel = depth - user;
  std::vector<uint64_t> chain;
  auto text = [&](uint64_t base, int level) {
    // Few choices near the root, many near the leaf.
    const uint64_t choices = uint64_t{1} << std::min(16, 2 + level);
    return base + (random() % choices) * 0x35 + static_cast<uint64_t>(level) * 0x1000;
  };
  chain.push_back(perf::kContextKernel);
  for (int level = kernel; level > 0; --level) {
    chain.push_back(hypervisor && level > kernel * 2 / 3 ? text(kXenText, level) : text(kernel_text, level));
  }
  chain.push_back(perf::kContextUser);
  for (int level = user; level > 0; --level) {
    chain.push_back(level > user / 2 ? text(kLibraryText, level) : text(kProgramText, level));
  }
  return chain;
}

size_t PowerOfTwo(size_t bytes) {
  size_t power = 4096;
  while (power < bytes) power *= 2;
  return power;
}

}  // namespace

perf::RecordLayout LiveLayout() {
  perf::RecordLayout layout;
  layout.sample_type = 1 | 2 | 4 | 32;
  layout.sample_id_all = true;
  return layout;
}

perf::Ring RingImages::Reader(size_t i) {
  rings_[i]->page()->data_tail = 0;
  return rings_[i]->MakeRing();
}

uint64_t RingImages::bytes() const {
  uint64_t total = 0;
  for (const auto& ring : rings_) total += ring->head();
  return total;
}

Synthetic::Synthetic(const Shape& shape) : kernel_text_(shape.kernel_text) {
  samples_ = shape.samples / shape.rings * shape.rings;
  layout_ = LiveLayout();
  const int per_ring = samples_ / shape.rings;
  std::mt19937_64 random(42);
  const size_t record_bytes = 40 + 8 * (shape.depth + 2);
  std::vector<std::vector<uint64_t>> chains(shape.distinct);
  for (int ring = 0; ring < shape.rings; ++ring) {
    rings_.push_back(std::make_unique<perf::testing::FakeRing>(PowerOfTwo(per_ring * record_bytes + 4096)));
    uint64_t time = first_ns_ + ring * 777;
    for (int i = 0; i < per_ring; ++i) {
      time += shape.step_ns + random() % 4000;
      // Few stacks are hot, many are rare.
      const double u = (random() >> 11) * 0x1.0p-53;
      const auto stack = static_cast<uint32_t>(std::pow(static_cast<double>(shape.distinct), u)) - 1;
      const uint32_t pid = 100 + stack % kProcesses;
      std::vector<uint64_t>& chain = chains[stack];
      if (chain.empty()) {
        const bool hypervisor = stack % 4 == 0 && shape.depth >= 6;
        chain = Chain(stack, shape.depth, hypervisor, kernel_text_);
      }
      rings_.back()->Write(perf::testing::SampleRecord(1, chain[1], pid, pid, time, chain));
    }
    end_ns_ = std::max(end_ns_, time + 1);
  }
}

void Synthetic::Describe(merge::Assembler* assembler) const {
  assembler->SetKernelText({{kernel_text_, kernel_text_ + kTextBytes, "[kernel]", ""}});
  assembler->SetHypervisorText({kXenText, kXenText + kTextBytes, "[xen]", ""});
  for (uint32_t process = 0; process < kProcesses; ++process) {
    const uint32_t pid = 100 + process;
    assembler->AddProcess(pid, pid, "load", false);
    perf::SidebandEvent mmap;
    mmap.type = perf::SidebandEvent::Type::kMmap;
    mmap.exec = true;
    mmap.pid = mmap.tid = pid;
    mmap.length = kTextBytes;
    mmap.address = kProgramText;
    mmap.name = "/usr/bin/load";
    assembler->AddMapping(mmap);
    mmap.address = kLibraryText;
    mmap.name = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    assembler->AddMapping(mmap);
  }
}

namespace {

class CapturedImages : public RingImages {
 public:
  absl::Status Load(const std::string& path, int samples, const merge::MergeOptions& options);
  void Describe(merge::Assembler* assembler) const override;

 private:
  std::vector<perf::SidebandEvent> before_;  // what perf told of processes that lived before
};

absl::Status CapturedImages::Load(const std::string& path, int samples, const merge::MergeOptions& options) {
  auto file = perf::PerfDataFile::Open(path);
  if (!file.ok()) return file.status();
  options_ = options;
  struct Record {
    std::vector<uint8_t> bytes;
    bool sample;
  };
  std::map<uint32_t, std::vector<Record>> cpus;
  uint64_t first_ns = ~uint64_t{0}, last_ns = 0;
  int captured = 0;
  perf::DataRecord record;
  while (true) {
    const absl::StatusOr<bool> more = (*file)->Next(&record);
    if (!more.ok()) return more.status();
    if (!*more) break;
    if (record.event == nullptr || record.type >= perf::kFirstUserRecordType) continue;
    const perf::RecordLayout& layout = record.event->layout;
    if (record.type == perf::kRecordSample) {
      perf::Sample sample;
      if (!record.event->samples_addresses() || !perf::DecodeSample(record.bytes, layout, &sample).ok())
        continue;
      layout_ = layout;
      first_ns = std::min(first_ns, sample.time_ns);
      last_ns = std::max(last_ns, sample.time_ns);
      ++captured;
      cpus[sample.cpu].push_back({{record.bytes.begin(), record.bytes.end()}, true});
      continue;
    }
    perf::SidebandEvent event;
    if (!perf::DecodeSideband(record.bytes, layout, &event).ok()) continue;
    if (event.time_ns == 0) {
      before_.push_back(std::move(event));
    } else {
      cpus[event.cpu].push_back({{record.bytes.begin(), record.bytes.end()}, false});
    }
  }
  if (captured == 0) return absl::NotFoundError("no samples in " + path);
  // Sample: header, [identifier], [ip], [pid and tid], time.
  size_t time_at = 8;
  for (const uint64_t field : {uint64_t{1} << 16, uint64_t{1}, uint64_t{2}}) {
    if ((layout_.sample_type & field) != 0) time_at += 8;
  }
  const int times = std::max(1, samples / captured);
  const uint64_t span = last_ns - first_ns + 1'000'000;
  samples_ = captured * times;
  first_ns_ = 0;
  end_ns_ = first_ns + span * times;
  for (const auto& [cpu, records] : cpus) {
    size_t once = 0, again = 0;
    for (const Record& one : records) (one.sample ? again : once) += one.bytes.size();
    rings_.push_back(std::make_unique<perf::testing::FakeRing>(PowerOfTwo(once + again * times + 4096)));
    for (int pass = 0; pass < times; ++pass) {
      for (const Record& one : records) {
        if (!one.sample) {
          if (pass == 0) rings_.back()->Write(one.bytes);
          continue;
        }
        std::vector<uint8_t> bytes = one.bytes;
        uint64_t time = 0;
        std::memcpy(&time, bytes.data() + time_at, sizeof time);
        time += span * pass;
        std::memcpy(bytes.data() + time_at, &time, sizeof time);
        rings_.back()->Write(bytes);
      }
    }
  }
  return absl::OkStatus();
}

void CapturedImages::Describe(merge::Assembler* assembler) const {
  using Type = perf::SidebandEvent::Type;
  for (const perf::SidebandEvent& event : before_) {
    if (event.type == Type::kComm) assembler->AddProcess(event.pid, event.tid, event.name, false);
    if (event.type == Type::kMmap && event.exec) assembler->AddMapping(event);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RingImages>> Captured(const std::string& path, int samples,
                                                     const merge::MergeOptions& options) {
  auto images = std::make_unique<CapturedImages>();
  if (absl::Status status = images->Load(path, samples, options); !status.ok()) return status;
  return images;
}

}  // namespace xenprof::bench
