// A chunk's samples, counted before anything about them is translated.
#ifndef XENPROF_PROFILE_STACK_COUNTS_H_
#define XENPROF_PROFILE_STACK_COUNTS_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "xenprof/merge/window.h"
#include "xenprof/profile/pair_index.h"

namespace xenprof::profile {

class StackCounts {
 public:
  struct Dimensions {
    bool by_task, tasks_by_name, by_domain, by_cpu;
  };
  struct Sum {
    uint32_t task = 0;  // with tasks_by_name: the lowest of that name; 0 where tasks are not told apart
    uint32_t domain = 0;
    uint32_t cpu = 0;
    uint64_t count = 0;
    uint64_t time_ns = 0;
  };

  // `tasks` may grow from one call to the next.
  StackCounts(const std::vector<merge::Task>& tasks, Dimensions dimensions)
      : tasks_(tasks), dimensions_(dimensions) {}

  // One sample; ids are those of the chunk.
  void Add(uint32_t stack, uint32_t task, uint32_t domain, uint32_t cpu, uint64_t period_ns) {
    // Samples come CPU by CPU and task by task: the group is seldom another one.
    if (task != task_ || domain != domain_ || cpu != cpu_ || period_ns != period_ns_) {
      SetGroup(task, domain, cpu, period_ns);
    }
    const auto [pair, is_new] = pairs_.Insert(stack, group_);
    if (is_new) {
      counts_.push_back({1, task});
      return;
    }
    Count& count = counts_[pair];
    ++count.samples;
    count.task = std::min(count.task, task);
  }

  size_t sums() const { return counts_.size(); }
  // Calls visit(stack, absl::Span<const Sum>) for each stack, ascending; its sums by task, domain, CPU. In
  // the order of ids, not of a hash table: the same chunks give the same file.
  template <typename Visitor>
  void ForEachStack(Visitor&& visit) const {
    std::vector<Sum> sums;
    for (uint32_t stack = 0; stack < pairs_.owners(); ++stack) {
      sums.clear();
      pairs_.ForEach(stack, [&](uint32_t pair, uint32_t id) {
        const Group& group = groups_[id];
        const Count& count = counts_[pair];
        sums.push_back({dimensions_.by_task ? count.task : 0, group.domain, group.cpu, count.samples,
                        count.samples * group.period_ns});
      });
      if (sums.empty()) continue;
      std::sort(sums.begin(), sums.end(), [](const Sum& a, const Sum& b) {
        return std::tie(a.task, a.domain, a.cpu) < std::tie(b.task, b.domain, b.cpu);
      });
      visit(stack, absl::MakeConstSpan(sums));
    }
  }

 private:
  struct Group {
    uint32_t domain, cpu;
    uint64_t period_ns;
  };
  struct Count {
    uint64_t samples;
    uint32_t task;  // the lowest
  };

  void SetGroup(uint32_t task, uint32_t domain, uint32_t cpu, uint64_t period_ns);
  uint32_t NameOf(uint32_t task);

  const std::vector<merge::Task>& tasks_;
  const Dimensions dimensions_;
  uint32_t task_ = std::numeric_limits<uint32_t>::max(), domain_ = 0, cpu_ = 0, group_ = 0;
  uint64_t period_ns_ = 0;
  absl::flat_hash_map<std::tuple<uint32_t, uint32_t, uint32_t, uint64_t>, uint32_t> group_ids_;
  std::vector<Group> groups_;
  absl::flat_hash_map<std::string, uint32_t> name_ids_;
  std::vector<uint32_t> names_;  // index: task; id + 1, 0: not asked for yet
  PairIndex pairs_;              // stack, group
  std::vector<Count> counts_;    // index: pair
};

}  // namespace xenprof::profile

#endif  // XENPROF_PROFILE_STACK_COUNTS_H_
