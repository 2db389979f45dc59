#include "daemon/budget.h"

#include "daemon/clock.h"
#include "gtest/gtest.h"

namespace xenprof::daemon {
namespace {

using Action = BudgetStep::Action;

// Plays a host of 2 CPUs, a reading every 5 s.
struct Host {
  BudgetReading reading;
  Host() {
    reading.now_ns = 100 * kSecondNs;
    reading.cpus = 2;
    reading.frequency_hz = 997;
    reading.memory_bytes = 20 << 20;
  }
  // Seconds until the first step, at most `seconds`; the machine spends `permille` of itself on the daemon.
  std::pair<int, BudgetStep> Run(Budget* budget, int seconds, uint64_t permille) {
    for (int at = 0; at < seconds; at += 5) {
      reading.now_ns += 5 * kSecondNs;
      reading.cpu_ns += 5 * kSecondNs * 2 * permille / 1000;
      BudgetStep step = budget->Update(reading);
      if (step.action == Action::kSetFrequency) reading.frequency_hz = step.frequency_hz;
      if (step.action != Action::kNone) return {at + 5, step};
    }
    return {seconds, {}};
  }
};

TEST(Budget, NothingHappensWithinIt) {
  Budget budget({30, uint64_t{48} << 20}, 997);
  Host host;
  EXPECT_EQ(host.Run(&budget, 3600, 29).second.action, Action::kNone);
}

TEST(Budget, ABurstIsNoReason) {
  Budget budget({30, 0}, 997);
  Host host;
  host.Run(&budget, 120, 5);
  // Sealing: a whole second of one CPU.
  host.reading.cpu_ns += kSecondNs;
  EXPECT_EQ(host.Run(&budget, 300, 5).second.action, Action::kNone);
}

TEST(Budget, FrequencyGoesDownStepByStepThenShedsThenStops) {
  Budget budget({30, 0}, 997);
  Host host;
  uint32_t last = 997;
  int steps = 0;
  while (true) {
    const auto [seconds, step] = host.Run(&budget, 200, 60);
    ASSERT_GE(seconds, 60);
    if (step.action != Action::kSetFrequency) {
      EXPECT_EQ(step.action, Action::kShed);
      break;
    }
    EXPECT_LT(step.frequency_hz, last);
    EXPECT_NE(step.reason.find("60 thousandths"), std::string::npos) << step.reason;
    last = step.frequency_hz;
    ASSERT_LT(++steps, 10);
  }
  EXPECT_EQ(last, 10u);
  const auto [seconds, stop] = host.Run(&budget, 200, 60);
  EXPECT_EQ(stop.action, Action::kStop);
  EXPECT_NE(stop.reason.find("collecting has stopped"), std::string::npos);
  EXPECT_EQ(host.Run(&budget, 600, 60).second.action, Action::kNone);
}

TEST(Budget, ComesBackWhenCalm) {
  Budget budget({30, 0}, 997);
  Host host;
  EXPECT_EQ(host.Run(&budget, 200, 60).second.frequency_hz, 498u);
  EXPECT_EQ(host.Run(&budget, 200, 60).second.frequency_hz, 249u);
  // Between half of the limit and the limit: it stays.
  EXPECT_EQ(host.Run(&budget, 600, 20).second.action, Action::kNone);
  EXPECT_EQ(host.Run(&budget, 200, 5).second.frequency_hz, 498u);
  EXPECT_EQ(host.Run(&budget, 200, 5).second.frequency_hz, 996u);
  EXPECT_EQ(host.Run(&budget, 200, 5).second.frequency_hz, 997u);
  EXPECT_EQ(host.Run(&budget, 600, 5).second.action, Action::kNone);
}

TEST(Budget, SheddingEndsFirst) {
  Budget budget({30, 0}, 12);
  Host host;
  host.reading.frequency_hz = 12;
  EXPECT_EQ(host.Run(&budget, 200, 60).second.action, Action::kSetFrequency);
  EXPECT_EQ(host.Run(&budget, 200, 60).second.action, Action::kShed);
  EXPECT_EQ(host.Run(&budget, 200, 1).second.action, Action::kUnshed);
  EXPECT_EQ(host.Run(&budget, 200, 1).second.frequency_hz, 12u);
}

TEST(Budget, MemorySealsEarlyFirst) {
  Budget budget({0, uint64_t{48} << 20}, 997);
  Host host;
  host.Run(&budget, 60, 1);
  host.reading.memory_bytes = uint64_t{60} << 20;
  EXPECT_EQ(host.Run(&budget, 60, 1).second.action, Action::kSealEarly);
  const BudgetStep step = host.Run(&budget, 60, 1).second;
  EXPECT_EQ(step.action, Action::kSetFrequency);
  EXPECT_NE(step.reason.find("60 MiB is above the limit of 48 MiB"), std::string::npos) << step.reason;
  host.reading.memory_bytes = uint64_t{20} << 20;
  EXPECT_EQ(host.Run(&budget, 200, 1).second.frequency_hz, 996u);
}

TEST(Budget, NoLimitsNoSteps) {
  Budget budget({0, 0}, 997);
  Host host;
  host.reading.memory_bytes = uint64_t{4} << 30;
  EXPECT_EQ(host.Run(&budget, 3600, 1000).second.action, Action::kNone);
}

}  // namespace
}  // namespace xenprof::daemon
