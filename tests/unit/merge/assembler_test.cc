#include "xenprof/merge/assembler.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/merge/context_markers.h"

namespace xenprof::merge {
namespace {

using perf::CpuMode;
using perf::SidebandEvent;

SidebandEvent Mmap(uint64_t time, uint32_t pid, uint64_t start, uint64_t length, uint64_t offset,
                   std::string name, std::string build_id = "") {
  SidebandEvent event;
  event.type = SidebandEvent::Type::kMmap;
  event.exec = true;
  event.time_ns = time;
  event.pid = event.tid = pid;
  event.address = start;
  event.length = length;
  event.page_offset = offset;
  event.name = std::move(name);
  event.build_id = std::move(build_id);
  return event;
}

SidebandEvent Comm(uint64_t time, uint32_t pid, uint32_t tid, std::string name, bool exec) {
  SidebandEvent event;
  event.type = SidebandEvent::Type::kComm;
  event.time_ns = time;
  event.pid = pid;
  event.tid = tid;
  event.exec = exec;
  event.name = std::move(name);
  return event;
}

SidebandEvent Fork(uint64_t time, uint32_t parent, uint32_t pid, uint32_t tid) {
  SidebandEvent event;
  event.type = SidebandEvent::Type::kFork;
  event.time_ns = time;
  event.pid = pid;
  event.tid = tid;
  event.parent_pid = event.parent_tid = parent;
  return event;
}

SidebandEvent Exit(uint64_t time, uint32_t pid, uint32_t tid) {
  SidebandEvent event;
  event.type = SidebandEvent::Type::kExit;
  event.time_ns = time;
  event.pid = pid;
  event.tid = tid;
  return event;
}

class AssemblerTest : public testing::Test {
 protected:
  void Sample(BatchBuilder& builder, uint64_t time, uint32_t pid, uint32_t tid, CpuMode mode, uint64_t ip,
              std::vector<uint64_t> chain) {
    perf::Sample sample;
    sample.time_ns = time;
    sample.pid = pid;
    sample.tid = tid;
    sample.mode = mode;
    sample.ip = ip;
    sample.chain = chain;
    builder.AddSample(sample);
  }
  void User(BatchBuilder& builder, uint64_t time, uint32_t pid, uint64_t ip) {
    Sample(builder, time, pid, pid, CpuMode::kUser, ip, {U, ip});
  }
  void HandOn(BatchBuilder& builder, uint64_t until) {
    assembler_.AddBatch(builder.Take(until, assembler_.TakeRecycled()));
  }

  // "comm: mapping+offset < mapping+offset", leaf first.
  std::string Told(const CpuColumns& columns, size_t row) {
    const Tables& tables = assembler_.tables();
    std::string text = tables.tasks[columns.task[row]].comm + ":";
    for (uint32_t node = tables.stacks[columns.stack[row]].leaf; node != 0;
         node = tables.nodes[node].parent) {
      const Frame& frame = tables.frames[tables.nodes[node].frame];
      char buffer[64];
      snprintf(buffer, sizeof buffer, "+%lx", static_cast<unsigned long>(frame.address));
      text += " " + tables.mappings[frame.mapping].name + buffer;
    }
    return text;
  }
  const CpuColumns& Cpu(const Window& window, uint32_t cpu) {
    return *std::find_if(window.cpus.begin(), window.cpus.end(), [&](const auto& c) { return c.cpu == cpu; });
  }

  MergeOptions options_;
  Assembler assembler_;
};

TEST_F(AssemblerTest, SidebandOfAnotherCpuAppliesByTimeNotByArrival) {
  assembler_.AddProcess(10, 10, "old", false);
  assembler_.AddMapping(Mmap(0, 10, 0x1000, 0x1000, 0, "/bin/old"));
  BatchBuilder zero(0, options_), one(1, options_);
  // On CPU 0: before, between and after the exec that CPU 1 tells of.
  User(zero, 100, 10, 0x1800);
  User(zero, 200, 10, 0x1800);
  User(zero, 300, 10, 0x1800);
  one.AddSideband(Comm(150, 10, 10, "new", true));
  one.AddSideband(Mmap(160, 10, 0x1000, 0x1000, 0x4000, "/bin/new"));
  one.AddSideband(Mmap(250, 10, 0x1000, 0x1000, 0x7000, "/bin/newer"));
  HandOn(zero, 1000);
  HandOn(one, 1000);
  Window window;
  assembler_.Advance(1000, &window);
  const CpuColumns& columns = Cpu(window, 0);
  ASSERT_EQ(columns.stack.size(), 3u);
  EXPECT_EQ(Told(columns, 0), "old: /bin/old+800");
  EXPECT_EQ(Told(columns, 1), "new: /bin/new+4800");
  EXPECT_EQ(Told(columns, 2), "new: /bin/newer+7800");
}

// Within execve the saved registers are still those of the call, wherever the new program lies.
TEST_F(AssemblerTest, UntilExecReturnsTheOldProgramIsShown) {
  assembler_.AddProcess(10, 10, "old", false);
  assembler_.AddMapping(Mmap(0, 10, 0x1000, 0x1000, 0, "/bin/old"));
  BatchBuilder zero(0, options_);
  zero.AddSideband(Comm(150, 10, 10, "new", true));
  User(zero, 155, 10, 0x1800);
  zero.AddSideband(Mmap(160, 10, 0x5000, 0x1000, 0, "/bin/new"));
  zero.AddSideband(Mmap(161, 10, 0x7000, 0x1000, 0, "/lib/ld.so"));
  zero.AddSideband(Mmap(162, 10, 0x9000, 0x1000, 0, "[vdso]"));
  User(zero, 165, 10, 0x1800);
  User(zero, 166, 10, 0x5800);
  zero.AddSideband(Mmap(170, 10, 0xb000, 0x1000, 0, "/lib/libc.so"));
  User(zero, 175, 10, 0x1800);
  HandOn(zero, 1000);
  Window window;
  assembler_.Advance(1000, &window);
  const CpuColumns& columns = Cpu(window, 0);
  ASSERT_EQ(columns.stack.size(), 4u);
  EXPECT_EQ(Told(columns, 0), "new: /bin/old+800");
  EXPECT_EQ(Told(columns, 1), "new: /bin/old+800");
  EXPECT_EQ(Told(columns, 2), "new: /bin/new+800");
  EXPECT_EQ(Told(columns, 3), "new: [unknown]+1800");
}

// A program without frame pointers: the kernel goes on through whatever the register points at.
TEST_F(AssemblerTest, CallersWhereNothingIsMappedAreCut) {
  assembler_.AddProcess(10, 10, "p", false);
  assembler_.AddMapping(Mmap(0, 10, 0x1000, 0x1000, 0, "/bin/p"));
  BatchBuilder zero(0, options_);
  Sample(zero, 100, 10, 10, CpuMode::kUser, 0x1800, {U, 0x1800, 0x1900, 0x555500001234, 0x1a00});
  Sample(zero, 101, 10, 10, CpuMode::kUser, 0x1800, {U, 0x1800, 0x1900, 0x7ffe00005678});
  Sample(zero, 102, 10, 10, CpuMode::kUser, 0x1800, {U, 0x1800, 0x2000, 0x2002});
  // Where the program was is where it was.
  Sample(zero, 103, 10, 10, CpuMode::kUser, 0x9000, {U, 0x9000, 0x1900});
  // Of a process without any mapping nothing is known.
  Sample(zero, 104, 20, 20, CpuMode::kUser, 0x1800, {U, 0x1800, 0x1900});
  HandOn(zero, 200);
  Window window;
  assembler_.Advance(200, &window);
  const CpuColumns& columns = Cpu(window, 0);
  EXPECT_EQ(Told(columns, 0), "p: /bin/p+800 /bin/p+900 [unknown]+0");
  EXPECT_EQ(columns.stack[0], columns.stack[1]);
  EXPECT_EQ(Told(columns, 2), "p: /bin/p+800 /bin/p+1000 [unknown]+0")
      << "a return address may be just behind";
  EXPECT_EQ(Told(columns, 3), "p: [unknown]+9000 /bin/p+900");
  EXPECT_EQ(Told(columns, 4), ": [unknown]+1800 [unknown]+1900");
}

// What the kernel finds in a program's data differs every time; a reader tells what cannot be an address, so
// that the same stack stays the same.
TEST_F(AssemblerTest, ImpossibleCallersMakeNoStackOfTheirOwn) {
  assembler_.AddProcess(10, 10, "p", false);
  assembler_.AddMapping(Mmap(0, 10, 0x1000, 0x1000, 0, "/bin/p"));
  BatchBuilder zero(0, options_);
  for (uint64_t i = 0; i < 100; ++i) {
    Sample(zero, 100 + i, 10, 10, CpuMode::kKernel, 0xffffffff81000010,
           {K, 0xffffffff81000010, 0xffffffff81000800, U, 0x1800, 0x1900, i, 0x5555000 + i});
  }
  CpuBatch batch = zero.Take(1000);
  EXPECT_EQ(batch.stacks.size(), 1u);
  assembler_.AddBatch(std::move(batch));
  Window window;
  assembler_.Advance(1000, &window);
  EXPECT_EQ(Told(Cpu(window, 0), 99),
            "p: [kernel]+ffffffff81000010 [kernel]+ffffffff81000800 /bin/p+800 /bin/p+900 [unknown]+0");
}

TEST_F(AssemblerTest, LeavesOfTheSameCallersShareTheirNodes) {
  assembler_.AddProcess(10, 10, "p", false);
  assembler_.AddMapping(Mmap(0, 10, 0x1000, 0x1000, 0, "/bin/p"));
  BatchBuilder zero(0, options_);
  for (uint64_t i = 0; i < 10; ++i) {
    const uint64_t leaf = 0xffffffff81000010 + i;
    Sample(zero, 100 + i, 10, 10, CpuMode::kKernel, leaf,
           {K, leaf, 0xffffffff81000800, 0xffffffff81000900, U, i < 5 ? uint64_t{0x1800} : 0x1804, 0x1900});
  }
  HandOn(zero, 1000);
  Window window;
  assembler_.Advance(1000, &window);
  for (uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(Told(Cpu(window, 0), i),
              absl::StrCat("p: [kernel]+", absl::Hex(0xffffffff81000010 + i),
                           " [kernel]+ffffffff81000800 [kernel]+ffffffff81000900 /bin/p+",
                           i < 5 ? "800" : "804", " /bin/p+900"));
  }
  // The root, the outermost frame, two places that call the kernel with two kernel frames each, ten leaves.
  EXPECT_EQ(assembler_.tables().nodes.size(), 1u + 1 + 2 * 3 + 10);
}

// The cache of sampled stacks forgets; what they were interned as does not.
TEST_F(AssemblerTest, AnyNumberOfStacksKeepTheirIds) {
  assembler_.AddProcess(10, 10, "p", false);
  assembler_.AddMapping(Mmap(0, 10, 0x100000, 0x1000000, 0, "/bin/p"));
  constexpr uint64_t kStacks = 20000;
  Window window;
  for (int round = 0; round < 2; ++round) {
    BatchBuilder zero(0, options_);
    for (uint64_t i = 0; i < kStacks; ++i) {
      const uint64_t time = 1 + static_cast<uint64_t>(round) * kStacks + i;
      Sample(zero, time, 10, 10, CpuMode::kUser, 0x100000 + i, {U, 0x100000 + i, 0x200000 + i % 7});
    }
    HandOn(zero, 1 + (static_cast<uint64_t>(round) + 1) * kStacks);
    assembler_.Advance(1 + (static_cast<uint64_t>(round) + 1) * kStacks, &window);
  }
  const CpuColumns& columns = Cpu(window, 0);
  ASSERT_EQ(columns.stack.size(), 2 * kStacks);
  EXPECT_EQ(assembler_.tables().stacks.size(), kStacks);
  for (uint64_t i = 0; i < kStacks; ++i) ASSERT_EQ(columns.stack[i], columns.stack[i + kStacks]) << i;
}

TEST_F(AssemblerTest, WhatIsLaterWaits) {
  assembler_.AddProcess(10, 10, "p", false);
  BatchBuilder zero(0, options_);
  User(zero, 100, 10, 0x1800);
  User(zero, 300, 10, 0x1800);
  zero.AddSideband(Mmap(250, 10, 0x1000, 0x1000, 0, "/bin/p"));
  HandOn(zero, 400);
  Window window;
  window.start_ns = 50;
  assembler_.Advance(200, &window);
  EXPECT_EQ(window.samples(), 1u);
  EXPECT_EQ(window.end_ns, 200u);
  EXPECT_EQ(Told(Cpu(window, 0), 0), "p: [unknown]+1800");
  window.Clear();
  window.start_ns = 200;
  assembler_.Advance(400, &window);
  ASSERT_EQ(window.samples(), 1u);
  EXPECT_EQ(Told(Cpu(window, 0), 0), "p: /bin/p+800");
  EXPECT_EQ(assembler_.waiting_samples(), 0u);
}

TEST_F(AssemblerTest, AForkedChildHasItsParentsMappingsAndKeepsThem) {
  assembler_.AddProcess(10, 10, "parent", false);
  assembler_.AddMapping(Mmap(0, 10, 0x1000, 0x1000, 0, "/bin/parent"));
  BatchBuilder zero(0, options_);
  zero.AddSideband(Fork(100, 10, 11, 11));
  User(zero, 110, 11, 0x1010);
  zero.AddSideband(Comm(120, 10, 10, "other", true));
  User(zero, 130, 11, 0x1010);
  User(zero, 140, 10, 0x1010);
  HandOn(zero, 200);
  Window window;
  assembler_.Advance(200, &window);
  const CpuColumns& columns = Cpu(window, 0);
  EXPECT_EQ(Told(columns, 0), "parent: /bin/parent+10");
  EXPECT_EQ(Told(columns, 1), "parent: /bin/parent+10");
  // Within execve: the registers are still those of the call.
  EXPECT_EQ(Told(columns, 2), "other: /bin/parent+10");
  // Both child samples are one stack.
  EXPECT_EQ(columns.stack[0], columns.stack[1]);
}

TEST_F(AssemblerTest, ProcessesWithDifferentLayoutsShareStacksOfOneFile) {
  for (uint32_t pid : {10u, 20u}) {
    assembler_.AddProcess(pid, pid, "same", false);
    assembler_.AddMapping(Mmap(0, pid, 0x100000 * pid, 0x1000, 0x2000, "/lib/c.so", "id"));
  }
  BatchBuilder zero(0, options_);
  User(zero, 1, 10, 0x100000 * 10 + 0x44);
  User(zero, 2, 20, 0x100000 * 20 + 0x44);
  HandOn(zero, 10);
  Window window;
  assembler_.Advance(10, &window);
  const CpuColumns& columns = Cpu(window, 0);
  EXPECT_EQ(columns.stack[0], columns.stack[1]);
  EXPECT_NE(columns.task[0], columns.task[1]);
  EXPECT_EQ(Told(columns, 0), "same: /lib/c.so+2044");
}

TEST_F(AssemblerTest, APidUsedAgainIsAnotherProcess) {
  assembler_.AddProcess(10, 10, "first", false);
  assembler_.AddMapping(Mmap(0, 10, 0x1000, 0x1000, 0, "/bin/first"));
  BatchBuilder zero(0, options_);
  User(zero, 1, 10, 0x1010);
  zero.AddSideband(Exit(5, 10, 10));
  zero.AddSideband(Fork(8, 1, 10, 10));
  zero.AddSideband(Comm(9, 10, 10, "second", true));
  User(zero, 10, 10, 0x1010);
  HandOn(zero, 20);
  Window window;
  assembler_.Advance(20, &window);
  EXPECT_EQ(Told(Cpu(window, 0), 0), "first: /bin/first+10");
  EXPECT_EQ(Told(Cpu(window, 0), 1), "second: [unknown]+1010");
  // The end of the first is carried out after the second began and must not take it along.
  BatchBuilder more(0, options_);
  User(more, 30, 10, 0x1010);
  HandOn(more, 40);
  window.Clear();
  assembler_.Advance(40, &window);
  EXPECT_EQ(Told(Cpu(window, 0), 0), "second: [unknown]+1010");
}

TEST_F(AssemblerTest, ThreadsKeepTheProcessAliveAfterTheirLeader) {
  assembler_.AddProcess(10, 10, "leader", false);
  assembler_.AddProcess(10, 12, "worker", false);
  assembler_.AddMapping(Mmap(0, 10, 0x1000, 0x1000, 0, "/bin/p"));
  BatchBuilder zero(0, options_);
  zero.AddSideband(Exit(5, 10, 10));
  HandOn(zero, 20);
  Window window;
  assembler_.Advance(20, &window);
  Sample(zero, 30, 10, 12, CpuMode::kUser, 0x1010, {U, 0x1010});
  HandOn(zero, 40);
  window.Clear();
  assembler_.Advance(40, &window);
  EXPECT_EQ(Told(Cpu(window, 0), 0), "worker: /bin/p+10");
}

TEST_F(AssemblerTest, KernelModulesXenAndGuestsHaveMappingsOfTheirOwn) {
  assembler_.SetKernelText({{0xffffffff81000000, 0xffffffff81c00000, "[kernel]", "kid"},
                            {0xffffffffc0400000, 0xffffffffc0410000, "[nf_tables]", ""}});
  assembler_.SetHypervisorText({0xffff82d040200000, 0xffff82d040400000, "[xen]", "xid"});
  options_.hypervisor_stacks = true;
  BatchBuilder zero(0, options_);
  Sample(zero, 1, 0, 0, CpuMode::kKernel, 0xffff82d040201000,
         {K, 0xffff82d040201000, 0xffff82d040202000, 0xffffffffc0400100, 0xffffffff81000200});
  Sample(zero, 2, 0, 0, CpuMode::kGuestKernel, 0xffffffff81000200, {K});
  Sample(zero, 3, 0, 0, CpuMode::kGuestUser, 0x400100, {});
  HandOn(zero, 10);
  Window window;
  assembler_.Advance(10, &window);
  const CpuColumns& columns = Cpu(window, 0);
  EXPECT_EQ(Told(columns, 0),
            "swapper: [xen]+ffff82d040201000 [xen]+ffff82d040202000 [nf_tables]+ffffffffc0400100 "
            "[kernel]+ffffffff81000200");
  EXPECT_EQ(Told(columns, 1), "swapper: [guest kernel]+ffffffff81000200");
  EXPECT_EQ(Told(columns, 2), "swapper: [guest user]+400100");
  EXPECT_EQ(assembler_.tables().mappings[assembler_.tables().frames[0].mapping].build_id, "kid");
}

TEST_F(AssemblerTest, AnewChunkStartsItsIdsAgain) {
  assembler_.AddProcess(10, 10, "p", false);
  assembler_.AddMapping(Mmap(0, 10, 0x1000, 0x1000, 0, "/bin/p"));
  int calls = 0;
  assembler_.OnNewMapping([&](const Mapping& mapping, uint32_t pid, uint64_t start) {
    ++calls;
    EXPECT_EQ(mapping.name, "/bin/p");
    EXPECT_EQ(pid, 10u);
    EXPECT_EQ(start, 0x1000u);
  });
  BatchBuilder zero(0, options_);
  User(zero, 1, 10, 0x1010);
  User(zero, 20, 10, 0x1020);
  HandOn(zero, 30);
  Window window;
  assembler_.Advance(10, &window);
  const Tables old = assembler_.StartChunk();
  EXPECT_EQ(old.stacks.size(), 1u);
  EXPECT_EQ(assembler_.tables().stacks.size(), 0u);
  window.Clear();
  assembler_.Advance(30, &window);
  EXPECT_EQ(assembler_.tables().stacks.size(), 1u);
  EXPECT_EQ(Told(Cpu(window, 0), 0), "p: /bin/p+20");
  EXPECT_EQ(calls, 2);
}

// Room is kept for a chunk like the last, yet a chunk is measured, and turned over, by what is in it.
TEST_F(AssemblerTest, AnewChunkIsSmallWhateverTheLastWas) {
  const size_t empty = assembler_.memory_bytes();
  BatchBuilder zero(0, options_);
  for (uint64_t i = 0; i < 50000; ++i)
    Sample(zero, 1 + i, 0, 0, CpuMode::kKernel, 0xffffffff81000000 + i, {K, 0xffffffff81000000 + i});
  HandOn(zero, 100000);
  Window window;
  assembler_.Advance(100000, &window);
  EXPECT_GT(assembler_.memory_bytes(), empty + 1000000);
  assembler_.StartChunk();
  EXPECT_LT(assembler_.memory_bytes(), empty + 100000);
}

TEST_F(AssemblerTest, OverlappingMappingsAreCutNotLost) {
  assembler_.AddProcess(10, 10, "p", false);
  assembler_.AddMapping(Mmap(0, 10, 0x1000, 0x4000, 0, "/a"));
  assembler_.AddMapping(Mmap(0, 10, 0x2000, 0x1000, 0x9000, "/b"));
  BatchBuilder zero(0, options_);
  for (uint64_t ip : {0x1010, 0x2010, 0x3010, 0x5010}) User(zero, 1, 10, ip);
  HandOn(zero, 30);
  Window window;
  assembler_.Advance(10, &window);
  const CpuColumns& columns = Cpu(window, 0);
  EXPECT_EQ(Told(columns, 0), "p: /a+10");
  EXPECT_EQ(Told(columns, 1), "p: /b+9010");
  EXPECT_EQ(Told(columns, 2), "p: /a+2010");
  EXPECT_EQ(Told(columns, 3), "p: [unknown]+5010");
}

TEST_F(AssemblerTest, RunTimeCodeBelongsToItsProcess) {
  for (uint32_t pid : {10u, 20u}) {
    assembler_.AddProcess(pid, pid, "jit", false);
    assembler_.AddMapping(Mmap(0, pid, 0x1000, 0x1000, 0, "//anon"));
  }
  BatchBuilder zero(0, options_);
  User(zero, 1, 10, 0x1010);
  User(zero, 2, 20, 0x1010);
  HandOn(zero, 10);
  Window window;
  assembler_.Advance(10, &window);
  const Tables& tables = assembler_.tables();
  EXPECT_NE(Cpu(window, 0).stack[0], Cpu(window, 0).stack[1]);
  EXPECT_EQ(tables.mappings[tables.frames[0].mapping].pid, 10u);
  EXPECT_EQ(tables.mappings[tables.frames[1].mapping].pid, 20u);
  EXPECT_EQ(tables.frames[0].address, 0x1010u);
}

TEST_F(AssemblerTest, LossAndThrottlingAreToldPerCpu) {
  BatchBuilder three(3, options_);
  SidebandEvent event;
  event.type = SidebandEvent::Type::kLost;
  event.time_ns = 5;
  event.count = 42;
  three.AddSideband(event);
  event.type = SidebandEvent::Type::kThrottle;
  event.time_ns = 6;
  three.AddSideband(event);
  HandOn(three, 10);
  Window window;
  assembler_.Advance(10, &window);
  ASSERT_EQ(window.incidents.size(), 2u);
  EXPECT_EQ(window.incidents[0].kind, Incident::Kind::kLost);
  EXPECT_EQ(window.incidents[0].cpu, 3);
  EXPECT_EQ(window.incidents[0].count, 42u);
  // Still throttled at the window's end: told in parts.
  EXPECT_EQ(window.incidents[1].kind, Incident::Kind::kThrottled);
  EXPECT_EQ(window.incidents[1].start_ns, 6u);
  EXPECT_EQ(window.incidents[1].end_ns, 10u);
  event.type = SidebandEvent::Type::kUnthrottle;
  event.time_ns = 13;
  three.AddSideband(event);
  HandOn(three, 20);
  window.Clear();
  assembler_.Advance(20, &window);
  ASSERT_EQ(window.incidents.size(), 1u);
  EXPECT_EQ(window.incidents[0].start_ns, 10u);
  EXPECT_EQ(window.incidents[0].end_ns, 13u);
}

TEST_F(AssemblerTest, SampledTimeIsWhatTheReadersVouchFor) {
  BatchBuilder zero(0, options_), one(1, options_);
  assembler_.StartCpu(0, 100);
  assembler_.StartCpu(1, 100);
  HandOn(zero, 1000);
  HandOn(one, 400);
  Window window;
  window.start_ns = 100;
  assembler_.Advance(900, &window);
  EXPECT_EQ(Cpu(window, 0).sampled_ns, 800u);
  EXPECT_EQ(Cpu(window, 1).sampled_ns, 300u);
  // CPU 1 was off and comes back.
  assembler_.StartCpu(1, 950);
  HandOn(one, 2000);
  HandOn(zero, 2000);
  window.Clear();
  assembler_.Advance(1000, &window);
  EXPECT_EQ(Cpu(window, 0).sampled_ns, 100u);
  EXPECT_EQ(Cpu(window, 1).sampled_ns, 50u);
}

TEST_F(AssemblerTest, ALateSampleIsTakenInOrder) {
  BatchBuilder zero(0, options_);
  User(zero, 100, 1, 0x1);
  User(zero, 90, 1, 0x2);
  HandOn(zero, 200);
  Window window;
  window.start_ns = 95;
  assembler_.Advance(200, &window);
  const CpuColumns& columns = Cpu(window, 0);
  EXPECT_EQ(columns.time_ns, (std::vector<uint64_t>{90, 100}));
  EXPECT_EQ(Told(columns, 0), ": [unknown]+2");
  EXPECT_EQ(window.start_ns, 90u);
}

TEST_F(AssemblerTest, ProcAndItsEventAreTheSameMapping) {
  assembler_.AddProcess(10, 10, "p", false);
  // /proc knows an inode, the event a build id, for one and the same mapping.
  assembler_.AddMapping(Mmap(0, 10, 0x1000, 0x1000, 0, "/bin/p"));
  BatchBuilder zero(0, options_);
  zero.AddSideband(Mmap(5, 10, 0x1000, 0x1000, 0, "/bin/p", "buildid"));
  User(zero, 10, 10, 0x1010);
  HandOn(zero, 20);
  Window window;
  assembler_.Advance(20, &window);
  const Tables& tables = assembler_.tables();
  EXPECT_EQ(tables.mappings[tables.frames[0].mapping].build_id, "buildid");
}

}  // namespace
}  // namespace xenprof::merge
