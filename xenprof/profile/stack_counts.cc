#include "xenprof/profile/stack_counts.h"

#include "absl/strings/string_view.h"
#include "xenprof/profile/translator.h"

namespace xenprof::profile {

uint32_t StackCounts::NameOf(uint32_t task) {
  if (names_.size() <= task) names_.resize(tasks_.size());
  uint32_t& known = names_[task];
  if (known == 0) {
    known = 1 + name_ids_.try_emplace(std::string(TaskName(tasks_[task])), name_ids_.size()).first->second;
  }
  return known - 1;
}

void StackCounts::SetGroup(uint32_t task, uint32_t domain, uint32_t cpu, uint64_t period_ns) {
  task_ = task;
  domain_ = domain;
  cpu_ = cpu;
  period_ns_ = period_ns;
  const uint32_t who = !dimensions_.by_task ? 0 : dimensions_.tasks_by_name ? NameOf(task) : task;
  const Group group = {dimensions_.by_domain ? domain : 0, dimensions_.by_cpu ? cpu : 0, period_ns};
  const auto [entry, is_new] = group_ids_.try_emplace({who, group.domain, group.cpu, period_ns},
                                                      static_cast<uint32_t>(groups_.size()));
  if (is_new) groups_.push_back(group);
  group_ = entry->second;
}

}  // namespace xenprof::profile
