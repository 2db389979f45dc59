#include "daemon/budget.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace xenprof::daemon {

BudgetStep Budget::Update(const BudgetReading& reading) {
  readings_.push_back(reading);
  // The oldest kept is the last one at or before the window's beginning.
  while (readings_.size() >= 2 && readings_[1].now_ns + limits_.window_ns <= reading.now_ns)
    readings_.pop_front();
  if (level_ == Level::kStopped) return {};
  if (last_step_ns_ == 0) last_step_ns_ = reading.now_ns;
  const BudgetReading& oldest = readings_.front();
  const uint64_t span_ns = reading.now_ns - oldest.now_ns;
  const bool whole_window = span_ns >= limits_.window_ns;

  const bool over_memory = limits_.memory_bytes != 0 && reading.memory_bytes > limits_.memory_bytes;
  // Memory does not wait for the window; a step is given a few readings to show.
  if (over_memory && reading.now_ns - last_step_ns_ >= limits_.window_ns / 6) {
    return Up(reading, absl::StrCat("memory of ", reading.memory_bytes >> 20, " MiB is above the limit of ",
                                    limits_.memory_bytes >> 20, " MiB"));
  }
  if (!whole_window || reading.now_ns - last_step_ns_ < limits_.window_ns) return {};
  const double permille = 1000.0 * static_cast<double>(reading.cpu_ns - oldest.cpu_ns) /
                          static_cast<double>(span_ns) / reading.cpus;
  if (limits_.cpu_permille != 0 && permille > limits_.cpu_permille) {
    return Up(reading,
              absl::StrCat("CPU time of ", static_cast<int>(permille * 10) / 10.0,
                           " thousandths of this machine is above the limit of ", limits_.cpu_permille));
  }
  const bool calm_cpu = limits_.cpu_permille == 0 || permille * 2 < limits_.cpu_permille;
  const bool calm_memory = limits_.memory_bytes == 0 || reading.memory_bytes * 10 < limits_.memory_bytes * 8;
  if (calm_memory) sealed_early_ = false;
  if (calm_cpu && calm_memory && level_ != Level::kFree) return Down(reading);
  return {};
}

BudgetStep Budget::Up(const BudgetReading& reading, const std::string& cost) {
  last_step_ns_ = reading.now_ns;
  BudgetStep step;
  const bool memory = limits_.memory_bytes != 0 && reading.memory_bytes > limits_.memory_bytes;
  if (memory && !sealed_early_) {
    sealed_early_ = true;
    step.action = BudgetStep::Action::kSealEarly;
    step.reason = absl::StrCat(cost, ": a new chunk begins early");
    return step;
  }
  if (level_ != Level::kShedding && reading.frequency_hz > limits_.least_frequency_hz) {
    level_ = Level::kLowered;
    step.action = BudgetStep::Action::kSetFrequency;
    step.frequency_hz = std::max(reading.frequency_hz / 2, limits_.least_frequency_hz);
    step.reason = absl::StrCat(cost, ": frequency lowered from ", reading.frequency_hz, " to ",
                               step.frequency_hz, " Hz");
    return step;
  }
  if (level_ != Level::kShedding) {
    level_ = Level::kShedding;
    step.action = BudgetStep::Action::kShed;
    step.reason = absl::StrCat(cost, " even at ", reading.frequency_hz, " Hz: samples are dropped");
    return step;
  }
  level_ = Level::kStopped;
  step.action = BudgetStep::Action::kStop;
  step.reason = absl::StrCat(cost, " although samples are dropped: collecting has stopped");
  return step;
}

BudgetStep Budget::Down(const BudgetReading& reading) {
  last_step_ns_ = reading.now_ns;
  BudgetStep step;
  if (level_ == Level::kShedding) {
    level_ = Level::kLowered;
    step.action = BudgetStep::Action::kUnshed;
    step.reason = "the daemon's own cost has fallen: samples are kept again";
    return step;
  }
  if (reading.frequency_hz >= wanted_hz_) {
    level_ = Level::kFree;
    return step;
  }
  step.action = BudgetStep::Action::kSetFrequency;
  step.frequency_hz = std::min(reading.frequency_hz * 2, wanted_hz_);
  step.reason =
      absl::StrCat("the daemon's own cost has fallen: frequency raised to ", step.frequency_hz, " Hz");
  if (step.frequency_hz == wanted_hz_) level_ = Level::kFree;
  return step;
}

}  // namespace xenprof::daemon
