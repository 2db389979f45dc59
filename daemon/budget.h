// What the daemon itself may cost, and what follows when it costs more: decides, changes nothing.
#ifndef DAEMON_BUDGET_H_
#define DAEMON_BUDGET_H_

#include <cstdint>
#include <deque>
#include <string>

namespace xenprof::daemon {

struct BudgetLimits {
  uint32_t cpu_permille = 0;  // of all CPUs together; 0: no limit
  uint64_t memory_bytes = 0;  // 0: no limit
  uint64_t window_ns = 60'000'000'000;
  uint32_t least_frequency_hz = 10;
};

struct BudgetReading {
  uint64_t now_ns = 0;
  uint64_t cpu_ns = 0;        // user and system time of the process so far
  uint64_t memory_bytes = 0;  // anonymous memory now
  uint32_t cpus = 1;          // online
  uint32_t frequency_hz = 0;  // in force
};

struct BudgetStep {
  enum class Action {
    kNone,
    kSealEarly,     // memory: begin a new chunk
    kSetFrequency,  // to frequency_hz
    kShed,          // drop samples
    kUnshed,
    kStop,  // collecting
  };
  Action action = Action::kNone;
  uint32_t frequency_hz = 0;
  std::string reason;  // for the log and the chunk
};

// One step at a time, and none before the one before has had its time to show.
class Budget {
 public:
  // `wanted_hz` is what is gone back to, step by step, when the cost has fallen to less than half of the
  // limits.
  Budget(const BudgetLimits& limits, uint32_t wanted_hz) : limits_(limits), wanted_hz_(wanted_hz) {}

  // To be called every few seconds.
  BudgetStep Update(const BudgetReading& reading);
  // Someone asked for another frequency.
  void SetWanted(uint32_t hz) { wanted_hz_ = hz; }
  // An absence of this length in the readings is no cost (the machine slept).
  uint64_t window_ns() const { return limits_.window_ns; }

 private:
  enum class Level { kFree, kLowered, kShedding, kStopped };
  BudgetStep Up(const BudgetReading& reading, const std::string& cost);
  BudgetStep Down(const BudgetReading& reading);

  const BudgetLimits limits_;
  uint32_t wanted_hz_;
  Level level_ = Level::kFree;
  bool sealed_early_ = false;
  uint64_t last_step_ns_ = 0;
  std::deque<BudgetReading> readings_;  // of the window, oldest first
};

}  // namespace xenprof::daemon

#endif  // DAEMON_BUDGET_H_
