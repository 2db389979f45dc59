// What stands at the bottom of each stack: whose it was.
#ifndef XENPROF_EXPORT_ROOTS_H_
#define XENPROF_EXPORT_ROOTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "xenprof/profile/profile.h"

namespace xenprof::exporter {

struct Root {
  uint32_t host = 0;
  std::string label;  // a task's name, a guest's name, "[guest]", "[xen idle]", "[unattributed]"
};

// A dom0 sample belongs to its task. The task that was current when a guest's, an idle or an unattributed
// sample was recorded says nothing about it (dom0 had to run to record it), so it is not used for those.
bool TaskIsMeaningful(Origin origin);

struct Roots {
  std::vector<Root> roots;
  std::vector<uint32_t> of_sample;  // index: Profile::samples
  bool several_hosts = false;       // then the host's name goes below the root
};
Roots AssignRoots(const profile::Profile& profile);

}  // namespace xenprof::exporter

#endif  // XENPROF_EXPORT_ROOTS_H_
