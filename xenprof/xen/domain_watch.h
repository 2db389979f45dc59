// Which domains came, went or changed their name.
#ifndef XENPROF_XEN_DOMAIN_WATCH_H_
#define XENPROF_XEN_DOMAIN_WATCH_H_

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "xenprof/xen/hypervisor.h"

namespace xenprof::xen {

struct DomainChange {
  enum class Kind { kAdded, kRemoved, kRenamed };
  Kind kind = Kind::kAdded;
  DomainInfo domain;  // of kRemoved: as last seen
};

// Domain ids are used again, so a domain is (domid, UUID): one that was rebooted between two looks is one
// removed and one added.
class DomainTracker {
 public:
  using Key = std::pair<uint32_t, std::array<uint8_t, 16>>;

  // Differences to the previous list, removals first.
  std::vector<DomainChange> Update(absl::Span<const DomainInfo> now);
  // All that are there, by (domid, UUID).
  const std::map<Key, DomainInfo>& domains() const { return domains_; }
  // The domain with this id now, nullptr when there is none.
  const DomainInfo* Find(uint32_t domid) const;

 private:
  std::map<Key, DomainInfo> domains_;
};

// Polls or waits: when `hypervisor.DomainWatchFd()` is readable (or now and then, where xenstore cannot be
// reached), call this. The first call reports every domain as added.
absl::StatusOr<std::vector<DomainChange>> FetchDomainChanges(Hypervisor& hypervisor, DomainTracker& tracker);

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_DOMAIN_WATCH_H_
