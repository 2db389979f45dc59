// The hypervisor's facts as a chunk keeps them.
#ifndef XENPROF_XEN_FACTS_H_
#define XENPROF_XEN_FACTS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "xenprof/xen/host.h"
#include "xenprof/xen/hypervisor.h"
#include "xenprof/xen/vpmu_decision.h"

namespace xenprof::xen {

// As HypervisorFacts in proto/chunk.proto, whose comments count.
struct HypervisorFacts {
  std::string version;
  std::string changeset;
  std::string build_id;  // raw bytes
  std::string command_line;
  std::string capabilities;
  std::string compiler;
  std::vector<CpuTopology> topology;
  std::vector<uint32_t> dom0_vcpu_pinned_cpus;  // CPU + 1, 0: not pinned to exactly one
  std::string unavailable_reason;
  struct Domain {
    uint32_t domid = 0;
    std::array<uint8_t, 16> uuid{};
    std::string name;
    uint32_t vcpus = 0;
    bool operator==(const Domain& other) const = default;
  };
  std::vector<Domain> domains;  // ascending domid

  bool operator==(const HypervisorFacts& other) const;
};

// Asks Xen where `hypervisor` is not null, sysfs for the rest. `open_problem` says why it is null. On a host
// without Xen everything is empty but unavailable_reason.
HypervisorFacts CollectFacts(const XenHost& host, Hypervisor* hypervisor,
                             const std::string& open_problem = "");

// What the vPMU's decisions need of the host. Guests: all domains but dom0 and those that are dying.
PmuHostFacts CollectPmuHostFacts(const XenHost& host, Hypervisor* hypervisor);

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_FACTS_H_
