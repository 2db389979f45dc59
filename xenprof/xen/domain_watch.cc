#include "xenprof/xen/domain_watch.h"

namespace xenprof::xen {

std::vector<DomainChange> DomainTracker::Update(absl::Span<const DomainInfo> now) {
  std::map<Key, DomainInfo> next;
  for (const DomainInfo& domain : now) {
    // A dying domain runs no more; Xen keeps it until its memory is given back.
    if (!domain.dying) next[{domain.domid, domain.uuid}] = domain;
  }
  std::vector<DomainChange> changes;
  for (const auto& [key, domain] : domains_) {
    if (!next.contains(key)) changes.push_back({DomainChange::Kind::kRemoved, domain});
  }
  for (auto& [key, domain] : next) {
    const auto before = domains_.find(key);
    if (before == domains_.end()) {
      changes.push_back({DomainChange::Kind::kAdded, domain});
      continue;
    }
    // A name that cannot be read just now is not a domain without a name.
    if (domain.name.empty()) domain.name = before->second.name;
    if (domain.name != before->second.name) changes.push_back({DomainChange::Kind::kRenamed, domain});
  }
  domains_ = std::move(next);
  return changes;
}

const DomainInfo* DomainTracker::Find(uint32_t domid) const {
  const auto found = domains_.lower_bound({domid, {}});
  return found != domains_.end() && found->first.first == domid ? &found->second : nullptr;
}

absl::StatusOr<std::vector<DomainChange>> FetchDomainChanges(Hypervisor& hypervisor, DomainTracker& tracker) {
  // Events first: one that comes between here and the list is then still pending, not lost.
  if (absl::StatusOr<bool> taken = hypervisor.TakeDomainEvents();
      !taken.ok() && !absl::IsUnavailable(taken.status()) && !absl::IsUnimplemented(taken.status())) {
    return taken.status();
  }
  absl::StatusOr<std::vector<DomainInfo>> domains = hypervisor.Domains();
  if (!domains.ok()) return domains.status();
  return tracker.Update(*domains);
}

}  // namespace xenprof::xen
