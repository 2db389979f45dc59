#include "xenprof/perf/events.h"

#include "absl/time/clock.h"
#include "daemon/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/busy_cpus.h"
#include "xenprof/perf/record.h"

namespace xenprof::perf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseCpuList, ListsAndRanges) {
  EXPECT_THAT(*ParseCpuList("0-3,8\n"), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(*ParseCpuList("5"), ElementsAre(5));
  EXPECT_THAT(*ParseCpuList("4,1-2,2"), ElementsAre(1, 2, 4));
  EXPECT_TRUE(ParseCpuList("\n")->empty());
}

TEST(ParseCpuList, NonsenseIsNamed) {
  for (const char* text : {"x", "1-", "-1", "3-1", "0-99999999", "1-2-3", "1;2"}) {
    EXPECT_FALSE(ParseCpuList(text).ok()) << text;
  }
  EXPECT_THAT(std::string(ParseCpuList("0-3,z").status().message()), HasSubstr("\"z\""));
}

TEST(RingBytes, FollowsFrequencyAndDepth) {
  uint64_t last = 0;
  for (uint32_t hz : {1u, 97u, 997u, 9997u, 100000u}) {
    const uint64_t bytes = RingBytes(hz, 127);
    EXPECT_EQ(bytes & (bytes - 1), 0u);
    EXPECT_GE(bytes, last);
    // A third of a second of rather deep stacks fits.
    EXPECT_GE(bytes * 3, std::min<uint64_t>(hz * 440, uint64_t{64} << 20));
    last = bytes;
  }
  EXPECT_GE(RingBytes(9997, 127), RingBytes(9997, 10));
}

SamplingOptions Clock(uint32_t hz) {
  SamplingOptions options;
  options.event = std::string(kCpuClock);
  options.frequency_hz = hz;
  return options;
}

// Sampling takes privileges a test may not have.
#define PROBE_OR_SKIP(plan, options)                                                     \
  absl::StatusOr<SamplingPlan> plan = SamplingPlan::Probe(options, 0);                   \
  if (absl::IsPermissionDenied(plan.status())) {                                         \
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr("perf_event_paranoid")); \
    GTEST_SKIP() << plan.status().message();                                             \
  }                                                                                      \
  ASSERT_TRUE(plan.ok()) << plan.status()

TEST(SamplingPlan, WhatCannotBeIsRefusedWithTheReason) {
  SamplingOptions options = Clock(97);
  options.event = "r01c4";
  EXPECT_THAT(std::string(SamplingPlan::Probe(options, 0).status().message()), HasSubstr("\"r01c4\""));
  options = Clock(2000000000);
  EXPECT_THAT(std::string(SamplingPlan::Probe(options, 0).status().message()),
              HasSubstr("kernel.perf_event_max_sample_rate"));
  EXPECT_FALSE(SamplingPlan::Probe(Clock(0), 0).ok());
}

TEST(SamplingPlan, AnOfflineCpuSaysSo) {
  PROBE_OR_SKIP(plan, Clock(97));
  const absl::Status status = SamplingPlan::Probe(Clock(97), 60000).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("CPU 60000"));
}

struct Seen {
  uint64_t samples = 0, lost = 0, bad = 0;
  uint64_t first_ns = ~uint64_t{0}, last_ns = 0;

  void Drain(CpuEvent* event, const RecordLayout& layout) {
    const DrainResult result = event->ring()->Drain([&](absl::Span<const uint8_t> record) {
      RecordHeader header;
      memcpy(&header, record.data(), sizeof(header));
      if (header.type == PERF_RECORD_SAMPLE) {
        Sample sample;
        ASSERT_TRUE(DecodeSample(record, layout, &sample).ok());
        ++samples;
        first_ns = std::min(first_ns, sample.time_ns);
        last_ns = std::max(last_ns, sample.time_ns);
        EXPECT_LE(sample.chain.size(), 140u);
      } else {
        SidebandEvent sideband;
        ASSERT_TRUE(DecodeSideband(record, layout, &sideband).ok());
        if (sideband.type == SidebandEvent::Type::kLost) lost += sideband.count;
      }
    });
    bad += result.bad_records;
  }
};

TEST(CpuEvent, SamplesAtTheFrequencyAndByTheRightClock) {
  PROBE_OR_SKIP(plan, Clock(997));
  absl::StatusOr<std::unique_ptr<CpuEvent>> event = CpuEvent::Open(0, *plan, RingBytes(997, 127));
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ((*event)->ring()->Pending(), 0u) << "it is opened disabled";
  const BusyCpus busy;
  const uint64_t begin_ns = daemon::NowNs();
  ASSERT_TRUE((*event)->Enable().ok());
  absl::SleepFor(absl::Milliseconds(500));
  ASSERT_TRUE((*event)->Disable().ok());
  const uint64_t end_ns = daemon::NowNs();
  Seen seen;
  seen.Drain(event->get(), plan->layout());
  const double expected = 997.0 * static_cast<double>(end_ns - begin_ns) / 1e9;
  EXPECT_NEAR(static_cast<double>(seen.samples), expected, expected * 0.15 + 3);
  EXPECT_GE(seen.first_ns, begin_ns);
  EXPECT_LE(seen.last_ns, end_ns);
  EXPECT_EQ(seen.bad, 0u);
  const absl::StatusOr<CpuEvent::Counts> counts = (*event)->Read();
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_NEAR(static_cast<double>(counts->value), static_cast<double>(end_ns - begin_ns), 5e7);
}

TEST(CpuEvent, FrequencyChangesWithoutAGap) {
  PROBE_OR_SKIP(plan, Clock(100));
  absl::StatusOr<std::unique_ptr<CpuEvent>> event = CpuEvent::Open(0, *plan, 1 << 20);
  ASSERT_TRUE(event.ok()) << event.status();
  const BusyCpus busy;
  ASSERT_TRUE((*event)->Enable().ok());
  ASSERT_TRUE((*event)->SetFrequency(2000).ok());
  absl::SleepFor(absl::Milliseconds(50));
  Seen ignored, fast, slow;
  ignored.Drain(event->get(), plan->layout());
  absl::SleepFor(absl::Milliseconds(500));
  fast.Drain(event->get(), plan->layout());
  ASSERT_TRUE((*event)->SetFrequency(50).ok());
  absl::SleepFor(absl::Milliseconds(500));
  slow.Drain(event->get(), plan->layout());
  EXPECT_GT(fast.samples, 600u);
  EXPECT_LT(slow.samples, 60u);
  EXPECT_GT(slow.samples, 10u);
  EXPECT_FALSE((*event)->SetFrequency(0).ok());
}

TEST(CpuEvent, ATinyRingLosesAndCountsIt) {
  PROBE_OR_SKIP(plan, Clock(5000));
  absl::StatusOr<std::unique_ptr<CpuEvent>> event = CpuEvent::Open(0, *plan, 8192);
  ASSERT_TRUE(event.ok()) << event.status();
  const BusyCpus busy;
  ASSERT_TRUE((*event)->Enable().ok());
  absl::SleepFor(absl::Milliseconds(400));
  Seen seen;
  seen.Drain(event->get(), plan->layout());
  absl::SleepFor(absl::Milliseconds(50));
  ASSERT_TRUE((*event)->Disable().ok());
  seen.Drain(event->get(), plan->layout());
  EXPECT_GT(seen.lost, 0u);
  const absl::StatusOr<CpuEvent::Counts> counts = (*event)->Read();
  ASSERT_TRUE(counts.ok()) << counts.status();
  const auto& refused = plan->refused();
  if (std::find(refused.begin(), refused.end(), "read_format.lost") == refused.end()) {
    EXPECT_GE(counts->lost, seen.lost);
  }
}

TEST(CpuEvent, ManyAtATimeKeepTheirDescriptorsApart) {
  PROBE_OR_SKIP(plan, Clock(97));
  std::vector<std::unique_ptr<CpuEvent>> events;
  for (int i = 0; i < 8; ++i) {
    absl::StatusOr<std::unique_ptr<CpuEvent>> event = CpuEvent::Open(0, *plan, 16 << 10);
    ASSERT_TRUE(event.ok()) << event.status();
    for (const auto& other : events) ASSERT_NE(other->fd(), (*event)->fd());
    events.push_back(*std::move(event));
    if (i == 3) events.erase(events.begin() + 1);
  }
  for (const auto& event : events) EXPECT_TRUE(event->Read().ok());
}

TEST(CpuEvent, OddRingSizesAreRefused) {
  PROBE_OR_SKIP(plan, Clock(97));
  for (uint64_t bytes : {uint64_t{0}, uint64_t{100}, uint64_t{12288}, uint64_t{1} << 40}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CpuEvent::Open(0, *plan, bytes).status())) << bytes;
  }
}

}  // namespace
}  // namespace xenprof::perf
