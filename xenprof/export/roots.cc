#include "xenprof/export/roots.h"

#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "xenprof/export/summary.h"

namespace xenprof::exporter {

bool TaskIsMeaningful(Origin origin) {
  return origin == Origin::kDom0User || origin == Origin::kDom0Kernel || origin == Origin::kXenForDom0;
}

namespace {

std::string Label(const profile::Profile& profile, const profile::Sample& sample) {
  if (TaskIsMeaningful(sample.origin)) {
    const absl::string_view comm = profile.str(profile.tasks[sample.task].comm);
    if (!profile.by_task) return "[dom0]";
    return comm.empty() ? "[no name]" : std::string(comm);
  }
  if (sample.origin == Origin::kXenIdle) return "[xen idle]";
  if (sample.origin == Origin::kUnknown) return "[unattributed]";
  if (sample.domain != 0) return DomainText(profile, profile.domains[sample.domain]);
  return "[guest]";
}

}  // namespace

Roots AssignRoots(const profile::Profile& profile) {
  Roots out;
  out.of_sample.reserve(profile.samples.size());
  // Labels are made once per distinct cause, then told apart by their text.
  using Cause = std::tuple<uint32_t, uint32_t, uint32_t>;
  absl::flat_hash_map<Cause, uint32_t> by_cause;
  absl::flat_hash_map<std::pair<uint32_t, std::string>, uint32_t> by_label;
  Cause last_cause;
  uint32_t last_root = 0;
  for (const profile::Sample& sample : profile.samples) {
    const bool by_task = TaskIsMeaningful(sample.origin);
    const uint32_t what = by_task ? profile.tasks[sample.task].comm
                          : (sample.origin == Origin::kXenIdle || sample.origin == Origin::kUnknown)
                              ? static_cast<uint32_t>(sample.origin)
                              : 0x100 + sample.domain;
    const Cause cause = {sample.host, by_task, what};
    // Samples of one cause mostly follow each other.
    if (!out.of_sample.empty() && cause == last_cause) {
      out.of_sample.push_back(last_root);
      continue;
    }
    const auto [known, is_new] = by_cause.try_emplace(cause, 0);
    if (is_new) {
      std::string label = Label(profile, sample);
      const auto [entry, new_label] = by_label.try_emplace({sample.host, label}, out.roots.size());
      if (new_label) out.roots.push_back({sample.host, std::move(label)});
      known->second = entry->second;
    }
    last_cause = cause;
    last_root = known->second;
    out.of_sample.push_back(last_root);
  }
  for (const Root& root : out.roots) {
    out.several_hosts |= profile.hosts[root.host].hostname != profile.hosts[out.roots.front().host].hostname;
  }
  return out;
}

}  // namespace xenprof::exporter
