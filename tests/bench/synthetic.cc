#include "synthetic.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace xenprof::bench {
namespace {

constexpr uint32_t kProcesses = 16;
constexpr uint64_t kKernelText = 0xffffffff81000000;
constexpr uint64_t kXenText = 0xffff82d040200000;
constexpr uint64_t kProgramText = 0x555500000000;
constexpr uint64_t kLibraryText = 0x7f0000000000;
constexpr uint64_t kTextBytes = 0x400000;

// Call chains as programs have them: a tree in which callers are shared and leaves are many.
std::vector<uint64_t> Chain(uint32_t stack, int depth, bool hypervisor) {
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
    chain.push_back(hypervisor && level > kernel * 2 / 3 ? text(kXenText, level) : text(kKernelText, level));
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

Synthetic::Synthetic(const Shape& shape) : samples_(shape.samples / shape.rings * shape.rings) {
  const int per_ring = samples_ / shape.rings;
  std::mt19937_64 random(42);
  const size_t record_bytes = 40 + 8 * (shape.depth + 2);
  for (int ring = 0; ring < shape.rings; ++ring) {
    rings_.push_back(std::make_unique<perf::testing::FakeRing>(PowerOfTwo(per_ring * record_bytes + 4096)));
    uint64_t time = kFirstNs + ring * 777;
    for (int i = 0; i < per_ring; ++i) {
      time += 1'000'000 + random() % 4000;
      // Few stacks are hot, many are rare.
      const double u = (random() >> 11) * 0x1.0p-53;
      const auto stack = static_cast<uint32_t>(std::pow(static_cast<double>(shape.distinct), u)) - 1;
      const uint32_t pid = 100 + stack % kProcesses;
      const bool hypervisor = stack % 4 == 0 && shape.depth >= 6;
      const std::vector<uint64_t> chain = Chain(stack, shape.depth, hypervisor);
      rings_.back()->Write(perf::testing::SampleRecord(1, chain[1], pid, pid, time, chain));
    }
    end_ns_ = std::max(end_ns_, time + 1);
  }
}

perf::Ring Synthetic::Reader(size_t i) {
  rings_[i]->page()->data_tail = 0;
  return rings_[i]->MakeRing();
}

uint64_t Synthetic::bytes() const {
  uint64_t total = 0;
  for (const auto& ring : rings_) total += ring->head();
  return total;
}

void Synthetic::Describe(merge::Assembler* assembler) const {
  assembler->SetKernelText({{kKernelText, kKernelText + kTextBytes, "[kernel]", ""}});
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

}  // namespace xenprof::bench
