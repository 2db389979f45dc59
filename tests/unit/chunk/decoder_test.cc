#include "xenprof/chunk/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test_support.h"

namespace xenprof::chunk {
namespace {

using testing::HasSubstr;

// A block with one of everything: mapping 1, task 1, frame 0, node 1, stack 0, one sample of each CPU 0
// and 1.
proto::Block Block() {
  proto::Block block;
  block.set_start_ns(100);
  block.set_end_ns(200);
  proto::Dictionary* d = block.mutable_dictionary();
  d->add_mappings();
  d->add_mappings()->set_name("m");
  d->add_tasks();
  d->add_tasks()->set_comm("t");
  d->add_frame_mapping(1);
  d->add_frame_address(0x1000);
  d->add_node_parent(1);
  d->add_node_parent(1);
  d->add_node_frame(0);
  d->add_node_frame(1);
  d->add_stack_leaf(1);
  d->add_stack_kind(1);
  for (uint32_t id : {0u, 1u}) {
    proto::CpuSamples* cpu = block.add_cpus();
    cpu->set_cpu(id);
    cpu->set_first_ns(150);
    cpu->add_time_step(0);
    cpu->add_stack(1);
    cpu->add_task_runs(1);
    cpu->add_task_runs(1);
  }
  return block;
}

std::string ErrorOf(const proto::Block& block) {
  ChunkDecoder decoder{proto::Header()};
  const absl::Status status = decoder.AddBlock(block);
  EXPECT_NE(status.code(), absl::StatusCode::kOk);
  // Salvage takes the same block without walking out of anything, or refuses it too.
  ChunkDecoder salvaging{proto::Header(), {.salvage = true}};
  if (salvaging.AddBlock(block).ok()) {
    salvaging.ForEachSample(block, [&](uint32_t, uint64_t, uint32_t stack, uint32_t task, uint32_t domain) {
      EXPECT_LT(stack, salvaging.tables().stacks.size());
      EXPECT_LT(task, salvaging.tables().tasks.size());
      EXPECT_LT(domain, salvaging.domains().size());
      salvaging.ForEachFrame(stack, [&](uint32_t frame, bool) {
        EXPECT_LT(salvaging.tables().frames[frame].mapping, salvaging.tables().mappings.size());
      });
    });
  }
  return std::string(status.message());
}

TEST(ChunkDecoder, TakesAGoodBlock) {
  ChunkDecoder decoder{proto::Header()};
  ASSERT_TRUE(decoder.AddBlock(Block()).ok());
  int samples = 0;
  decoder.ForEachSample(Block(),
                        [&](uint32_t cpu, uint64_t time_ns, uint32_t stack, uint32_t task, uint32_t domain) {
                          EXPECT_EQ(cpu, static_cast<uint32_t>(samples));
                          EXPECT_EQ(time_ns, 150u);
                          EXPECT_EQ(stack, 0u);
                          EXPECT_EQ(decoder.tables().tasks[task].comm, "t");
                          EXPECT_EQ(domain, 0u);
                          ++samples;
                        });
  EXPECT_EQ(samples, 2);
}

TEST(ChunkDecoder, EveryReferenceIsChecked) {
  proto::Block block = Block();
  block.mutable_dictionary()->set_frame_mapping(0, 2);
  EXPECT_EQ(ErrorOf(block), "frame 0 refers to mapping 2, which does not exist");
  block = Block();
  block.mutable_dictionary()->set_node_frame(1, 2);
  EXPECT_EQ(ErrorOf(block), "node 1 refers to frame 1, which does not exist");
  block = Block();
  block.mutable_dictionary()->set_node_frame(1, INT32_MIN);
  EXPECT_EQ(ErrorOf(block), "node 1 refers to frame 2147483648, which does not exist");
  block = Block();
  block.mutable_dictionary()->set_node_parent(1, 2);
  EXPECT_EQ(ErrorOf(block), "node 1 has its caller, node 1, not before itself");
  block = Block();
  block.mutable_dictionary()->set_node_parent(1, UINT32_MAX);
  EXPECT_EQ(ErrorOf(block), "node 1 has its caller, node 4294967294, not before itself");
  block = Block();
  block.mutable_dictionary()->set_node_parent(0, 0);
  EXPECT_EQ(ErrorOf(block), "the root of all stacks has a caller");
  block = Block();
  block.mutable_dictionary()->set_stack_leaf(0, 2);
  EXPECT_EQ(ErrorOf(block), "stack 0 refers to node 2, which does not exist");
  block = Block();
  block.mutable_dictionary()->set_stack_leaf(0, -1);
  EXPECT_EQ(ErrorOf(block), "stack 0 refers to node 4294967295, which does not exist");
  block = Block();
  block.mutable_cpus(1)->set_stack(0, 2);
  EXPECT_EQ(ErrorOf(block), "samples of CPU 1: no stack 1");
  block = Block();
  block.mutable_cpus(1)->set_stack(0, INT32_MAX);
  EXPECT_THAT(ErrorOf(block), HasSubstr("no stack 2147483646"));
  block = Block();
  block.mutable_cpus(1)->set_task_runs(1, 2);
  EXPECT_EQ(ErrorOf(block), "samples of CPU 1: no task 2");
  block = Block();
  block.mutable_cpus(1)->add_domain_runs(1);
  block.mutable_cpus(1)->add_domain_runs(1);
  EXPECT_EQ(ErrorOf(block), "samples of CPU 1: no domain 1");
}

TEST(ChunkDecoder, ColumnsAgree) {
  proto::Block block = Block();
  block.mutable_dictionary()->add_frame_address(1);
  EXPECT_EQ(ErrorOf(block), "columns of frames differ in length: 1 and 2");
  block = Block();
  block.mutable_dictionary()->add_node_frame(1);
  EXPECT_EQ(ErrorOf(block), "columns of nodes differ in length: 2 and 3");
  block = Block();
  block.mutable_dictionary()->add_stack_kind(1);
  EXPECT_EQ(ErrorOf(block), "columns of stacks differ in length: 1 and 2");
  block = Block();
  block.mutable_cpus(0)->add_stack(0);
  EXPECT_EQ(ErrorOf(block), "samples of CPU 0: columns differ in length: 1 times, 2 stacks");
  block = Block();
  block.mutable_cpus(0)->set_time_low_bytes(1);
  EXPECT_THAT(ErrorOf(block), HasSubstr("1 times, 0 of 1 low bytes each"));
  block = Block();
  block.mutable_cpus(0)->set_time_low_bytes(UINT32_MAX);
  block.mutable_cpus(0)->set_time_low("x");
  EXPECT_THAT(ErrorOf(block), HasSubstr("low bytes each"));
  block = Block();
  block.mutable_cpus(0)->add_task_runs(7);
  EXPECT_EQ(ErrorOf(block), "samples of CPU 0: the runs of tasks are no pairs");
  block = Block();
  block.mutable_cpus(0)->set_task_runs(0, UINT32_MAX);
  EXPECT_EQ(ErrorOf(block), "samples of CPU 0: the runs of tasks are for 4294967295 samples, there are 1");
  block = Block();
  block.mutable_cpus(0)->clear_task_runs();
  EXPECT_EQ(ErrorOf(block), "samples of CPU 0: the runs of tasks are for 0 samples, there are 1");
  block = Block();
  block.mutable_cpus(0)->set_first_ns(200);
  EXPECT_EQ(ErrorOf(block), "samples of CPU 0: sample 0 at 200 ns is outside its block, 100 to 200 ns");
  block = Block();
  block.set_end_ns(50);
  EXPECT_EQ(ErrorOf(block), "block from 100 ns until 50 ns");
}

TEST(ChunkDecoder, ALostBlockIsNoticed) {
  ChunkDecoder decoder{proto::Header()};
  ASSERT_TRUE(decoder.AddBlock(Block()).ok());
  EXPECT_EQ(decoder.AddBlock(Block()).message(), "mapping 0 comes again: there are 2 already");
  proto::Block later;
  later.mutable_dictionary()->set_first_mapping(2);
  later.mutable_dictionary()->set_first_task(2);
  later.mutable_dictionary()->set_first_frame(1);
  later.mutable_dictionary()->set_first_node(2);
  later.mutable_dictionary()->set_first_stack(4);
  EXPECT_EQ(decoder.AddBlock(later).message(), "stack 1 to 3 are missing: a block was lost");
  later.mutable_dictionary()->set_first_stack(1);
  EXPECT_TRUE(decoder.AddBlock(later).ok());
  later.mutable_dictionary()->set_first_stack(UINT32_MAX);
  EXPECT_FALSE(decoder.AddBlock(later).ok());
}

TEST(ChunkDecoder, SalvageLeadsReferencesAcrossAHole) {
  ChunkDecoder decoder{proto::Header(), {.salvage = true}};
  ASSERT_TRUE(decoder.AddBlock(Block()).ok());
  // A block that added mapping 2, task 2, frame 1, node 2, stack 1 is lost. This one adds one more of each.
  proto::Block later;
  later.set_start_ns(300);
  later.set_end_ns(400);
  proto::Dictionary* d = later.mutable_dictionary();
  d->set_first_mapping(3);
  d->set_first_task(3);
  d->set_first_frame(2);
  d->set_first_node(3);
  d->set_first_stack(2);
  d->add_mappings()->set_name("new");
  d->add_tasks()->set_comm("new task");
  d->add_frame_mapping(3);
  d->add_frame_address(0x7);
  d->add_node_parent(3);  // caller: node 2, lost
  d->add_node_frame(1);
  d->add_stack_leaf(3);
  d->add_stack_kind(2);
  proto::CpuSamples* cpu = later.add_cpus();
  cpu->set_first_ns(300);
  for (const int32_t stack : {0, -1, 1}) {  // known, lost, new
    cpu->add_time_step(0);
    cpu->add_stack(stack);
  }
  for (const uint32_t task : {1u, 2u, 3u}) {
    cpu->add_task_runs(1);
    cpu->add_task_runs(task);
  }
  ASSERT_TRUE(decoder.AddBlock(later).ok());
  EXPECT_TRUE(decoder.lost_entries());
  std::vector<std::string> seen;
  decoder.ForEachSample(later, [&](uint32_t, uint64_t, uint32_t stack, uint32_t task, uint32_t) {
    std::string text = decoder.tables().tasks[task].comm + ":";
    decoder.ForEachFrame(stack, [&](uint32_t frame, bool) {
      text += " " + decoder.tables().mappings[decoder.tables().frames[frame].mapping].name;
    });
    seen.push_back(text);
  });
  EXPECT_THAT(seen, testing::ElementsAre("t: m", "[lost in damage]: [lost in damage]",
                                         "new task: new [lost in damage]"));
}

TEST(ChunkDecoder, SymbolsAreChecked) {
  ChunkDecoder decoder{proto::Header()};
  ASSERT_TRUE(decoder.AddBlock(Block()).ok());
  proto::Symbols good;
  good.add_strings("");
  good.add_strings("f");
  proto::MappingSymbols* m = good.add_mappings();
  m->set_mapping(1);
  m->add_function_start(0x1000);
  m->add_function_size(0x10);
  m->add_function_name(1);
  m->add_line_address(0x1000);
  m->add_line_depth(1);
  m->add_line_function(1);
  m->add_line_file(0);
  m->add_line_number(9);

  proto::Symbols bad = good;
  bad.mutable_mappings(0)->set_mapping(2);
  EXPECT_EQ(decoder.AddSymbols(bad).message(), "symbols: mapping 2: does not exist");
  bad = good;
  bad.mutable_mappings(0)->set_function_name(0, 2);
  EXPECT_EQ(decoder.AddSymbols(bad).message(), "symbols: mapping 1: no string 2");
  bad = good;
  bad.mutable_mappings(0)->add_function_size(1);
  EXPECT_EQ(decoder.AddSymbols(bad).message(), "symbols: mapping 1: columns of functions differ in length");
  bad = good;
  bad.mutable_mappings(0)->set_line_depth(0, UINT32_MAX);
  EXPECT_EQ(decoder.AddSymbols(bad).message(), "symbols: mapping 1: columns of lines differ in length");
  EXPECT_FALSE(decoder.has_symbols());

  ASSERT_TRUE(decoder.AddSymbols(good).ok());
  EXPECT_EQ(decoder.FunctionFor(1, 0x100f).name, "f");
  EXPECT_FALSE(decoder.FunctionFor(1, 0x1010));
  EXPECT_FALSE(decoder.FunctionFor(1, 0xfff));
  EXPECT_FALSE(decoder.FunctionFor(99, 0x1000));
  EXPECT_EQ(decoder.LinesFor(1, 0x1000)[0].line, 9u);
  EXPECT_TRUE(decoder.LinesFor(1, 0x1001).empty());
}

TEST(ChunkDecoder, FunctionsMayHaveBoundsAlone) {
  ChunkDecoder decoder{proto::Header()};
  ASSERT_TRUE(decoder.AddBlock(Block()).ok());
  proto::Symbols symbols;
  symbols.add_strings("");
  proto::MappingSymbols* m = symbols.add_mappings();
  m->set_mapping(1);
  m->add_function_start(0x1000);
  m->add_function_size(0x10);
  m->add_function_name(0);
  ASSERT_TRUE(decoder.AddSymbols(symbols).ok());
  const ChunkDecoder::Function function = decoder.FunctionFor(1, 0x100f);
  EXPECT_FALSE(function) << "it is not named";
  EXPECT_EQ(function.start, 0x1000u);
  EXPECT_EQ(function.size, 0x10u);
  EXPECT_EQ(decoder.FunctionFor(1, 0x1010).size, 0u);
}

}  // namespace
}  // namespace xenprof::chunk
