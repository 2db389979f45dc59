#include "xenprof/profile/build.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "tests/unit/profile/chunk_maker.h"

namespace xenprof::profile {
namespace {

using testing::HasSubstr;

constexpr int64_t kOffset = 1'700'000'000'000'000'000;
constexpr uint64_t kSecond = 1'000'000'000;

// Functions from the outermost to the leaf, for each sample's stack.
std::string PathOf(const Profile& profile, uint32_t node) {
  std::string path;
  for (; node != 0; node = profile.nodes[node].parent) {
    const Frame& frame = profile.frames[profile.nodes[node].frame];
    for (uint32_t i = 0; i < frame.line_count; ++i) {
      path = std::string(profile.str(profile.functions[profile.line(frame, i).function].name)) +
             (path.empty() ? "" : ";") + path;
    }
  }
  return path;
}

std::map<std::string, uint64_t> CountsByPath(const Profile& profile) {
  std::map<std::string, uint64_t> counts;
  for (const Sample& sample : profile.samples) counts[PathOf(profile, sample.node)] += sample.count;
  return counts;
}

TimeWindow Realtime(uint64_t start, uint64_t end) {
  TimeWindow window;
  window.start_ns = kOffset + static_cast<int64_t>(start);
  window.end_ns = kOffset + static_cast<int64_t>(end);
  return window;
}

TEST(BuildProfileTest, TakesEverySampleAndNamesFrames) {
  TemporaryFolder folder;
  const std::string path = WriteXenHostChunk(folder.File("a.xenprof"));
  const auto profile = BuildProfile(Files({path}), {});
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->totals.samples, kXenHostSamples);
  EXPECT_EQ(profile->totals.time_ns, kXenHostSamples * 10'000'000);
  const auto counts = CountsByPath(*profile);
  EXPECT_EQ(counts.at("main;xc_domain_getinfolist;do_syscall_64;hypercall_page;lstar_enter;do_domctl"), 100);
  EXPECT_EQ(counts.at("main;xl+0x9999"), 100);
  EXPECT_EQ(counts.at("[guest kernel]"), 100);
  EXPECT_EQ(counts.at("[xen]+0xffff82d040209999"), 100);
  EXPECT_EQ(counts.at(""), 100);
  EXPECT_EQ(profile->totals.by_origin[static_cast<size_t>(Origin::kXenForGuest)], 200);
  EXPECT_EQ(profile->totals.truncated, 100);
  EXPECT_EQ(profile->totals.guessed_origin, 100);
  ASSERT_EQ(profile->coverage.cpus.size(), 2);
  EXPECT_EQ(profile->coverage.cpus[0].samples, 500);
  EXPECT_EQ(profile->coverage.cpus[0].sampled_ns, 10 * kSecond);
  EXPECT_TRUE(profile->coverage.clean());
  EXPECT_EQ(profile->start_ns, kOffset + static_cast<int64_t>(kSecond));
  EXPECT_EQ(profile->end_ns, kOffset + static_cast<int64_t>(11 * kSecond));
  ASSERT_EQ(profile->modes.size(), 1);
  EXPECT_EQ(profile->modes[0].kind, ModeKind::kXenStacks);
  EXPECT_EQ(profile->modes[0].samples, kXenHostSamples);
}

TEST(BuildProfileTest, KeepsTheDimensionsAskedFor) {
  TemporaryFolder folder;
  const std::string path = WriteXenHostChunk(folder.File("a.xenprof"));
  const auto all = BuildProfile(Files({path}), {}, {.by_cpu = true});
  ASSERT_TRUE(all.ok()) << all.status();
  std::map<uint32_t, uint64_t> cpus, pids, domids;
  for (const Sample& sample : all->samples) {
    cpus[sample.cpu] += sample.count;
    pids[all->tasks[sample.task].pid] += sample.count;
    if (sample.domain != 0) domids[all->domains[sample.domain].domid] += sample.count;
  }
  EXPECT_EQ(cpus, (std::map<uint32_t, uint64_t>{{0, 500}, {1, 500}}));
  EXPECT_EQ(pids, (std::map<uint32_t, uint64_t>{{100, 666}, {200, 334}}));
  EXPECT_EQ(domids, (std::map<uint32_t, uint64_t>{{1, 300}}));

  const auto none = BuildProfile(Files({path}), {}, {.by_task = false, .by_domain = false});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->samples.size(), 10);
  for (const Sample& sample : none->samples) {
    EXPECT_EQ(sample.task, 0);
    EXPECT_EQ(sample.domain, 0);
    EXPECT_EQ(sample.cpu, kAnyCpu);
  }
}

TEST(BuildProfileTest, CutsTheWindowToTheNanosecond) {
  TemporaryFolder folder;
  ChunkMaker maker;
  const uint32_t kernel = maker.Mapping(FrameKind::kDom0Kernel, "[kernel]", false);
  const uint32_t stack = maker.Stack({{kernel, 0xffffffff81000000}}, Origin::kDom0Kernel);
  const uint64_t start = 3 * kSecond + 123, end = 7 * kSecond + 456;
  for (const uint64_t time : {start - 1, start, start + 1, end - 1, end, end + 1})
    maker.Sample(0, time, stack, 0);
  const std::string path = maker.Write(folder.File("a.xenprof"));
  const auto profile = BuildProfile(Files({path}), Realtime(start, end));
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->totals.samples, 3);
  EXPECT_EQ(profile->start_ns, kOffset + static_cast<int64_t>(start));
  EXPECT_EQ(profile->end_ns, kOffset + static_cast<int64_t>(end));

  TimeWindow monotonic;
  monotonic.clock = TimeWindow::Clock::kMonotonic;
  monotonic.start_ns = static_cast<int64_t>(start);
  monotonic.end_ns = static_cast<int64_t>(end);
  const auto same = BuildProfile(Files({path}), monotonic);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->totals.samples, 3);
  EXPECT_EQ(same->start_ns, profile->start_ns);

  // Windows side by side have every sample once.
  uint64_t sum = 0;
  for (uint64_t at = kSecond; at < 11 * kSecond; at += 333'333'333) {
    const auto part = BuildProfile(Files({path}), Realtime(at, at + 333'333'333));
    ASSERT_TRUE(part.ok()) << part.status();
    sum += part->totals.samples;
  }
  EXPECT_EQ(sum, 6);
}

TEST(BuildProfileTest, TakesTheLastStretch) {
  TemporaryFolder folder;
  const std::string path = WriteXenHostChunk(folder.File("a.xenprof"));
  TimeWindow window;
  window.last_ns = 2 * kSecond;
  const auto profile = BuildProfile(Files({path}), window);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->totals.samples, 200);
  EXPECT_EQ(profile->start_ns, kOffset + static_cast<int64_t>(9 * kSecond));
}

TEST(BuildProfileTest, CountsAChunkGivenTwiceOnce) {
  TemporaryFolder folder;
  const std::string path = WriteXenHostChunk(folder.File("a.xenprof"));
  const auto profile = BuildProfile(Files({path, path}), {});
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->totals.samples, kXenHostSamples);
  EXPECT_EQ(profile->coverage.duplicate_inputs, 1);
}

TEST(BuildProfileTest, CountsTimeOfOneBootOnceAlsoInACutChunk) {
  TemporaryFolder folder;
  ChunkMaker whole, cut;
  for (ChunkMaker* maker : {&whole, &cut}) {
    const uint32_t kernel = maker->Mapping(FrameKind::kDom0Kernel, "[kernel]", false);
    const uint32_t stack = maker->Stack({{kernel, 0xffffffff81000000}}, Origin::kDom0Kernel);
    const uint64_t last = maker == &whole ? 10 : 15;
    for (uint64_t second = maker == &whole ? 1 : 5; second < last; ++second) {
      maker->Sample(0, second * kSecond + 5, stack, 0);
    }
  }
  cut.header.set_source(proto::Header::EXTRACTED);
  cut.start_ns = 5 * kSecond;
  cut.end_ns = 15 * kSecond;
  whole.end_ns = 10 * kSecond;
  // The cut one first: what the daemon wrote still counts.
  const auto inputs = {cut.Write(folder.File("b.xenprof")), whole.Write(folder.File("a.xenprof"))};
  const auto profile = BuildProfile(Files(inputs), {});
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->totals.samples, 14);
  EXPECT_EQ(profile->coverage.overlapping_inputs, 1);
  EXPECT_TRUE(profile->coverage.clean());
}

TEST(BuildProfileTest, BringsSeveralHostsTogether) {
  TemporaryFolder folder;
  ChunkMaker first, second;
  second.header.mutable_host()->set_hostname("other");
  second.header.mutable_host()->set_boot_id("boot-2");
  second.realtime_offset_ns += static_cast<int64_t>(kSecond);
  std::vector<std::string> paths;
  for (ChunkMaker* maker : {&first, &second}) {
    const uint32_t kernel = maker->Mapping(FrameKind::kDom0Kernel, "[kernel]", false);
    maker->symbolizer.functions["[kernel]"] = {{0xffffffff81000000, 0x10, "idle"}};
    const uint32_t stack = maker->Stack({{kernel, 0xffffffff81000004}}, Origin::kDom0Kernel);
    const uint32_t task = maker->Task(7, 7, "same");
    for (uint64_t i = 1; i < 10; ++i) maker->Sample(0, i * kSecond, stack, task);
    paths.push_back(maker->Write(folder.File("chunk" + std::to_string(paths.size()) + ".xenprof")));
  }
  // [4 s, 6 s) of the calendar: 2 samples of the first, 2 of the second, at 3 s and 4 s of its own clock.
  const auto profile = BuildProfile(Files(paths), Realtime(4 * kSecond, 6 * kSecond));
  ASSERT_TRUE(profile.ok()) << profile.status();
  ASSERT_EQ(profile->hosts.size(), 2);
  EXPECT_EQ(profile->hosts[0].samples, 2);
  EXPECT_EQ(profile->hosts[1].samples, 2);
  EXPECT_EQ(profile->coverage.cpus.size(), 2);
  EXPECT_EQ(CountsByPath(*profile).at("idle"), 4);
  EXPECT_EQ(profile->functions.size(), 1);

  TimeWindow monotonic;
  monotonic.clock = TimeWindow::Clock::kMonotonic;
  const auto refused = BuildProfile(Files(paths), monotonic);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(BuildProfileTest, UnfoldsInlinedFunctionsAndKeepsLines) {
  TemporaryFolder folder;
  ChunkMaker maker;
  const uint32_t xen = maker.Mapping(FrameKind::kHypervisor, "[xen]", false);
  maker.symbolizer.functions["[xen]"] = {{0x1000, 0x100, "outer"}, {0x2000, 0x100, "caller"}};
  maker.symbolizer.lines["[xen]"] = {
      {0x1010, {{"inlined", "common/a.h", 12}, {"outer", "common/a.c", 34}}},
      {0x200f, {{"caller", "arch/b.c", 56}}},
  };
  const uint32_t stack = maker.Stack({{xen, 0x1010}, {xen, 0x2010}}, Origin::kXenForDom0);
  maker.Sample(0, 2 * kSecond, stack, 0);
  const std::string path = maker.Write(folder.File("a.xenprof"));

  const auto by_function = BuildProfile(Files({path}), {});
  ASSERT_TRUE(by_function.ok()) << by_function.status();
  EXPECT_EQ(CountsByPath(*by_function).count("caller;outer;inlined"), 1);
  EXPECT_EQ(by_function->nodes.size(), 4);

  const auto by_address = BuildProfile(Files({path}), {}, {.granularity = Granularity::kAddress});
  ASSERT_TRUE(by_address.ok()) << by_address.status();
  EXPECT_EQ(CountsByPath(*by_address).count("caller;outer;inlined"), 1);
  ASSERT_EQ(by_address->nodes.size(), 3);
  const Frame& leaf = by_address->frames[by_address->nodes[by_address->samples[0].node].frame];
  ASSERT_EQ(leaf.line_count, 2);
  EXPECT_EQ(leaf.address, 0x1010);
  EXPECT_EQ(by_address->str(by_address->line(leaf, 0).file), "common/a.h");
  EXPECT_EQ(by_address->line(leaf, 0).line, 12);
  const Node& caller = by_address->nodes[by_address->nodes[by_address->samples[0].node].parent];
  EXPECT_EQ(by_address->frames[caller.frame].address, 0x200f);  // less 1: a return address
  EXPECT_EQ(by_address->line(by_address->frames[caller.frame]).line, 56);

  const auto without = BuildProfile(Files({path}), {}, {.inlines = false});
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(CountsByPath(*without).count("caller;outer"), 1);
}

TEST(BuildProfileTest, LooksUpReturnAddressesOneBefore) {
  TemporaryFolder folder;
  ChunkMaker maker;
  const uint32_t kernel = maker.Mapping(FrameKind::kDom0Kernel, "[kernel]", false);
  // A call as the last instruction of `first`: the return address is the first of `second`.
  maker.symbolizer.functions["[kernel]"] = {{0x1000, 0x100, "first"}, {0x1100, 0x100, "second"}};
  maker.Sample(0, 2 * kSecond, maker.Stack({{kernel, 0x1100}, {kernel, 0x1100}}, Origin::kDom0Kernel), 0);
  const auto profile = BuildProfile(Files({maker.Write(folder.File("a.xenprof"))}), {});
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(CountsByPath(*profile).count("first;second"), 1);
}

TEST(BuildProfileTest, AddsUpLossAndTellsWhatHappened) {
  TemporaryFolder folder;
  ChunkMaker maker;
  const uint32_t kernel = maker.Mapping(FrameKind::kDom0Kernel, "[kernel]", false);
  const uint32_t stack = maker.Stack({{kernel, 1}}, Origin::kDom0Kernel);
  for (uint64_t i = 1; i < 11; ++i) maker.Sample(1, i * kSecond, stack, 0);
  using Kind = merge::Incident::Kind;
  maker.AddIncident({Kind::kLost, 1, 2 * kSecond, 2 * kSecond, 17, ""});
  maker.AddIncident({Kind::kLost, 1, 9 * kSecond, 9 * kSecond, 4, ""});
  maker.AddIncident({Kind::kThrottled, 1, 3 * kSecond, 5 * kSecond, 0, ""});
  maker.AddIncident({Kind::kQueueFull, 1, 4 * kSecond, 4 * kSecond, 3, ""});
  maker.AddIncident({Kind::kSilentCpu, 0, 5 * kSecond, 8 * kSecond, 0, "no PMI arrives"});
  maker.AddIncident({Kind::kGap, -1, 6 * kSecond, 6 * kSecond + 500'000'000, 0, "suspended"});
  const std::string path = maker.Write(folder.File("a.xenprof"));
  const auto all = BuildProfile(Files({path}), {});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->coverage.lost, 21);
  EXPECT_EQ(all->coverage.shed, 3);
  EXPECT_EQ(all->coverage.throttled_ns, 2 * kSecond);
  EXPECT_EQ(all->coverage.gap_ns, 500'000'000);
  EXPECT_FALSE(all->coverage.clean());
  ASSERT_EQ(all->coverage.cpus.size(), 2);
  EXPECT_EQ(all->coverage.cpus[0].silent_ns, 3 * kSecond);
  EXPECT_EQ(all->coverage.cpus[1].lost, 21);

  // Only what touches the window; spans are cut to it.
  const auto part = BuildProfile(Files({path}), Realtime(4 * kSecond, 6 * kSecond));
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->coverage.lost, 0);
  EXPECT_EQ(part->coverage.shed, 3);
  EXPECT_EQ(part->coverage.throttled_ns, kSecond);
  EXPECT_EQ(part->coverage.cpus[0].silent_ns, kSecond);
}

TEST(BuildProfileTest, NoticesTimeNoChunkCovers) {
  TemporaryFolder folder;
  std::vector<std::string> paths;
  for (const uint64_t start : {1, 20}) {
    ChunkMaker maker;
    maker.start_ns = start * kSecond;
    maker.end_ns = (start + 10) * kSecond;
    const uint32_t kernel = maker.Mapping(FrameKind::kDom0Kernel, "[kernel]", false);
    maker.Sample(0, maker.start_ns + 5, maker.Stack({{kernel, 1}}, Origin::kDom0Kernel), 0);
    paths.push_back(maker.Write(folder.File(std::to_string(start) + ".xenprof")));
  }
  const auto profile = BuildProfile(Files(paths), {});
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->coverage.gap_ns, 9 * kSecond);
  ASSERT_EQ(profile->coverage.happenings.size(), 1);
  EXPECT_EQ(profile->coverage.happenings[0].start_ns, kOffset + static_cast<int64_t>(11 * kSecond));
}

TEST(BuildProfileTest, FollowsFrequencyAndMode) {
  TemporaryFolder folder;
  ChunkMaker maker;
  const uint32_t kernel = maker.Mapping(FrameKind::kDom0Kernel, "[kernel]", false);
  const uint32_t stack = maker.Stack({{kernel, 1}}, Origin::kDom0Kernel);
  for (uint64_t i = 1; i < 11; ++i) maker.Sample(0, i * kSecond, stack, 0);
  // 100 Hz before 4 s, 50 Hz from there on.
  maker.AddIncident({merge::Incident::Kind::kFrequency, -1, 4 * kSecond, 4 * kSecond, 50, "budget"});
  maker.ModeFrom(7 * kSecond, proto::Mode::DOM0_ONLY);
  const auto profile = BuildProfile(Files({maker.Write(folder.File("a.xenprof"))}), {});
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->totals.time_ns, 3 * 10'000'000 + 7 * 20'000'000);
  EXPECT_EQ(profile->hosts[0].frequency_hz, 50);
  ASSERT_EQ(profile->modes.size(), 2);
  EXPECT_EQ(profile->modes[0].samples, 6);
  EXPECT_EQ(profile->modes[1].kind, ModeKind::kDom0Only);
  EXPECT_EQ(profile->modes[1].samples, 4);
}

TEST(BuildProfileTest, ReadsDescriptorsAndFolders) {
  TemporaryFolder folder;
  const std::string path = WriteXenHostChunk(folder.File("2026-11-30T23-59-01.123456Z-00000001.xenprof"));
  std::vector<Input> inputs;
  inputs.push_back({"from the daemon", UniqueFd(open(path.c_str(), O_RDONLY))});
  const auto by_descriptor = BuildProfile(std::move(inputs), {});
  ASSERT_TRUE(by_descriptor.ok()) << by_descriptor.status();
  EXPECT_EQ(by_descriptor->totals.samples, kXenHostSamples);

  auto expanded = ExpandInputs({folder.path()});
  ASSERT_TRUE(expanded.ok()) << expanded.status();
  ASSERT_EQ(expanded->size(), 1);
  EXPECT_EQ((*expanded)[0].path, path);
  EXPECT_EQ(ExpandInputs({folder.File("none")}).status().code(), absl::StatusCode::kNotFound);
}

TEST(BuildProfileTest, ReadsWhatADeadWriterLeft) {
  TemporaryFolder folder;
  ChunkMaker maker;
  const uint32_t program = maker.Mapping(FrameKind::kDom0User, "/bin/true", true);
  maker.Sample(0, 2 * kSecond, maker.Stack({{program, 0x10}}, Origin::kDom0User), 0);
  const auto profile = BuildProfile(Files({maker.WriteUnsealed(folder.File("a.xenprof"))}), {});
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->coverage.unsealed_inputs, 1);
  EXPECT_EQ(CountsByPath(*profile).at("true+0x10"), 1);
}

TEST(BuildProfileTest, ReportsDamageAndSalvagesWhenAsked) {
  TemporaryFolder folder;
  const std::string path = WriteXenHostChunk(folder.File("a.xenprof"));
  std::string bytes;
  {
    std::ifstream file(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  // Every byte on its own, in steps: never a crash, never more samples than there were.
  size_t errors = 0;
  for (size_t at = 40; at < bytes.size(); at += 97) {
    std::string broken = bytes;
    broken[at] = static_cast<char>(broken[at] ^ 0x55);
    const std::string broken_path = folder.File("broken.xenprof");
    std::ofstream(broken_path, std::ios::binary) << broken;
    const auto strict = BuildProfile(Files({broken_path}), {});
    if (!strict.ok()) {
      ++errors;
      EXPECT_THAT(strict.status().message(), HasSubstr("broken.xenprof"));
    }
    const auto salvaged = BuildProfile(Files({broken_path}), {}, {.salvage = true});
    if (salvaged.ok()) {
      EXPECT_LE(salvaged->totals.samples, kXenHostSamples) << "byte " << at;
      if (salvaged->totals.samples < kXenHostSamples) {
        EXPECT_FALSE(salvaged->coverage.damage.empty()) << "byte " << at;
      }
    }
  }
  EXPECT_GT(errors, 10);
}

TEST(BuildProfileTest, RefusesAStackNoSampleCanHave) {
  TemporaryFolder folder;
  ChunkMaker maker;
  const uint32_t program = maker.Mapping(FrameKind::kDom0User, "/bin/deep", true);
  maker.Sample(
      0, 2 * kSecond,
      maker.Stack(std::vector<std::pair<uint32_t, uint64_t>>(20'000, {program, 1}), Origin::kDom0User), 0);
  const auto profile = BuildProfile(Files({maker.Write(folder.File("a.xenprof"))}), {});
  EXPECT_FALSE(profile.ok());
  EXPECT_THAT(profile.status().message(), HasSubstr("frames"));
}

TEST(BuildProfileTest, SaysWhenNothingLiesInTheWindow) {
  TemporaryFolder folder;
  const std::string path = WriteXenHostChunk(folder.File("a.xenprof"));
  const auto profile = BuildProfile(Files({path}), Realtime(100 * kSecond, 200 * kSecond));
  EXPECT_EQ(profile.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(profile.status().message(), HasSubstr("none of the 1 chunks covers any of"));
  EXPECT_EQ(BuildProfile({}, {}).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace xenprof::profile
