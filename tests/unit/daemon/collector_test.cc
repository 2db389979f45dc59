#include "daemon/collector.h"

#include <unistd.h>

#include <fstream>
#include <map>

#include "absl/time/clock.h"
#include "daemon/clock.h"
#include "gtest/gtest.h"
#include "tests/busy_cpus.h"

namespace xenprof::daemon {
namespace {

using Kind = merge::Incident::Kind;

// Real events on CPU 0 and 1, and a file that says which of them are online.
class CollectorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) GTEST_SKIP() << "takes two CPUs";
    char path[] = "/tmp/online_XXXXXX";
    close(mkstemp(path));
    online_ = path;
    SetOnline("0-1");
  }
  void TearDown() override {
    collector_.reset();
    unlink(online_.c_str());
  }
  void SetOnline(const std::string& list) { std::ofstream(online_) << list << "\n"; }
  // False: skipped.
  bool Open(uint32_t hz, uint64_t ring_bytes = 0) {
    CollectorOptions options;
    options.event = "cpu-clock";
    options.frequency_hz = hz;
    options.ring_bytes = ring_bytes;
    options.online_file = online_;
    collector_ = std::make_unique<Collector>(options, &assembler_, &wake_);
    const absl::Status status = collector_->Open();
    if (absl::IsPermissionDenied(status)) return false;
    EXPECT_TRUE(status.ok()) << status;
    start_ns_ = NowNs();
    return true;
  }
  void Drain() {
    const uint64_t until_ns = NowNs();
    for (int i = 0; i < 1000 && !collector_->RequestDrain(until_ns); ++i) {
      absl::SleepFor(absl::Milliseconds(2));
      collector_->Collect();
    }
    collector_->Collect();
    assembler_.Advance(NowNs(), &window_);
  }
  size_t Count(Kind kind, int64_t cpu) {
    size_t count = 0;
    for (const merge::Incident& incident : window_.incidents)
      count += incident.kind == kind && incident.cpu == cpu;
    return count;
  }
  size_t Samples(uint32_t cpu) {
    for (const merge::CpuColumns& columns : window_.cpus) {
      if (columns.cpu == cpu) return columns.time_ns.size();
    }
    return 0;
  }

  BusyCpus busy_;
  std::string online_;
  EventFd wake_;
  merge::Assembler assembler_;
  merge::Window window_;
  std::unique_ptr<Collector> collector_;
  uint64_t start_ns_ = 0;
};

#define OPEN_OR_SKIP(...) \
  if (!Open(__VA_ARGS__)) GTEST_SKIP() << "sampling whole CPUs is not permitted here"

TEST_F(CollectorTest, BothCpusAreSampled) {
  OPEN_OR_SKIP(499);
  absl::SleepFor(absl::Milliseconds(600));
  Drain();
  EXPECT_GT(Samples(0), 150u);
  EXPECT_GT(Samples(1), 150u);
  uint64_t counted = 0;
  for (const Collector::CpuState& state : collector_->States()) {
    EXPECT_TRUE(state.online);
    EXPECT_EQ(state.lost, 0u);
    EXPECT_GT(state.last_sample_ns, start_ns_);
    counted += state.samples;
  }
  EXPECT_EQ(counted, Samples(0) + Samples(1));
  const uint64_t now_ns = NowNs();
  EXPECT_NEAR(static_cast<double>(collector_->OpenNs(1, start_ns_, now_ns)),
              static_cast<double>(now_ns - start_ns_), 1e6);
}

TEST_F(CollectorTest, ACpuThatGoesAndComesBack) {
  OPEN_OR_SKIP(499);
  absl::SleepFor(absl::Milliseconds(200));
  SetOnline("0");
  collector_->CheckCpus();
  const uint64_t off_ns = NowNs();
  Drain();
  const size_t before = Samples(1);
  EXPECT_GT(before, 20u) << "what its ring held is kept";
  EXPECT_EQ(Count(Kind::kCpuOffline, 1), 1u);
  EXPECT_FALSE(collector_->States()[1].online);
  absl::SleepFor(absl::Milliseconds(300));
  collector_->CheckCpus();
  SetOnline("0-1");
  collector_->CheckCpus();
  const uint64_t on_ns = NowNs();
  absl::SleepFor(absl::Milliseconds(200));
  Drain();
  EXPECT_EQ(Count(Kind::kCpuOnline, 1), 1u);
  ASSERT_EQ(Count(Kind::kGap, 1), 1u);
  for (const merge::Incident& incident : window_.incidents) {
    if (incident.kind != Kind::kGap) continue;
    EXPECT_LE(incident.start_ns, off_ns);
    EXPECT_NEAR(static_cast<double>(incident.end_ns), static_cast<double>(on_ns), 5e7);
  }
  EXPECT_GT(Samples(1), before + 20);
  // The span without events does not count as sampled.
  const uint64_t now_ns = NowNs();
  EXPECT_LT(collector_->OpenNs(1, start_ns_, now_ns) + 250'000'000, now_ns - start_ns_);
  // Totals go on where they were.
  EXPECT_EQ(collector_->States()[1].samples, Samples(1));
}

TEST_F(CollectorTest, ACpuThatWasNeverSeenBefore) {
  SetOnline("0");
  OPEN_OR_SKIP(499);
  SetOnline("0-1");
  collector_->CheckCpus();
  absl::SleepFor(absl::Milliseconds(200));
  Drain();
  EXPECT_EQ(Count(Kind::kCpuOnline, 1), 1u);
  EXPECT_EQ(Count(Kind::kGap, 1), 0u);
  EXPECT_GT(Samples(1), 20u);
}

TEST_F(CollectorTest, AnUnreadableOnlineFileChangesNothing) {
  OPEN_OR_SKIP(97);
  SetOnline("nonsense");
  collector_->CheckCpus();
  SetOnline("");
  collector_->CheckCpus();
  Drain();
  EXPECT_TRUE(collector_->States()[0].online && collector_->States()[1].online);
  EXPECT_TRUE(window_.incidents.empty());
}

TEST_F(CollectorTest, FrequencyIsChangedAndTold) {
  OPEN_OR_SKIP(50);
  const uint64_t ring_bytes = collector_->ring_bytes();
  ASSERT_EQ(*collector_->SetFrequency(300), 50u);
  EXPECT_EQ(collector_->ring_bytes(), ring_bytes);
  Drain();
  window_ = {};
  absl::SleepFor(absl::Milliseconds(500));
  Drain();
  EXPECT_GT(Samples(0), 90u);
  // Beyond what the rings are made for: they are replaced, and the moment without events is told.
  ASSERT_EQ(*collector_->SetFrequency(5000), 300u);
  EXPECT_GT(collector_->ring_bytes(), ring_bytes);
  absl::SleepFor(absl::Milliseconds(100));
  Drain();
  EXPECT_EQ(Count(Kind::kFrequency, -1), 1u);
  EXPECT_EQ(Count(Kind::kGap, 0), 1u);
  EXPECT_EQ(Count(Kind::kGap, 1), 1u);
  EXPECT_FALSE(collector_->SetFrequency(2000000000).ok());
  EXPECT_EQ(*collector_->SetFrequency(5000), 5000u) << "a refused one is not in force";
}

TEST_F(CollectorTest, LossesAreToldToTheLast) {
  OPEN_OR_SKIP(5000, 8192);
  absl::SleepFor(absl::Milliseconds(300));
  collector_->Close();
  assembler_.Advance(NowNs(), &window_);
  std::map<int64_t, uint64_t> told;
  for (const merge::Incident& incident : window_.incidents) {
    if (incident.kind == Kind::kLost) told[incident.cpu] += incident.count;
  }
  // The watermark wakes readers in time or it does not; what matters is that nothing is lost untold: 300 ms
  // at 5 kHz.
  for (const Collector::CpuState& state : collector_->States()) {
    EXPECT_EQ(told[state.cpu], state.lost);
    EXPECT_NEAR(static_cast<double>(state.samples + state.lost), 1500, 375) << state.cpu;
  }
}

TEST_F(CollectorTest, NoOnlineFileNoStart) {
  unlink(online_.c_str());
  CollectorOptions options;
  options.online_file = online_;
  Collector collector(options, &assembler_, &wake_);
  EXPECT_NE(std::string(collector.Open().message()).find(online_), std::string::npos);
}

}  // namespace
}  // namespace xenprof::daemon
