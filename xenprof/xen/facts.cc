#include "xenprof/xen/facts.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace xenprof::xen {
namespace {

// One reason is often the reason for several facts: said once.
void AddReason(std::string* reasons, absl::string_view reason) {
  if (reason.empty() || absl::StrContains(*reasons, reason)) return;
  absl::StrAppend(reasons, reasons->empty() ? "" : "; ", reason);
}

void Take(absl::StatusOr<std::string> from_xen, std::string* fact, std::string* reasons) {
  if (from_xen.ok()) {
    if (!from_xen->empty()) *fact = *std::move(from_xen);
  } else if (fact->empty()) {
    AddReason(reasons, from_xen.status().message());
  }
}

}  // namespace

bool HypervisorFacts::operator==(const HypervisorFacts& other) const {
  if (topology.size() != other.topology.size()) return false;
  for (size_t i = 0; i < topology.size(); ++i) {
    const CpuTopology &a = topology[i], &b = other.topology[i];
    if (a.cpu != b.cpu || a.core != b.core || a.socket != b.socket || a.node != b.node) return false;
  }
  return version == other.version && changeset == other.changeset && build_id == other.build_id &&
         command_line == other.command_line && capabilities == other.capabilities &&
         compiler == other.compiler && dom0_vcpu_pinned_cpus == other.dom0_vcpu_pinned_cpus &&
         unavailable_reason == other.unavailable_reason && domains == other.domains;
}

HypervisorFacts CollectFacts(const XenHost& host, Hypervisor* hypervisor, const std::string& open_problem) {
  HypervisorFacts facts;
  if (!host.on_xen) {
    facts.unavailable_reason = "not running on Xen";
    return facts;
  }
  facts.version = host.version;
  facts.changeset = host.changeset;
  facts.build_id = host.build_id;
  facts.capabilities = host.capabilities;
  facts.compiler = host.compiler;
  if (hypervisor == nullptr) {
    facts.unavailable_reason =
        absl::StrCat("Xen's command line, topology, pinning and domains are not known: ",
                     open_problem.empty() ? "Xen was not asked" : open_problem);
    return facts;
  }
  std::string reasons;
  Take(hypervisor->Version(), &facts.version, &reasons);
  Take(hypervisor->Changeset(), &facts.changeset, &reasons);
  Take(hypervisor->BuildId(), &facts.build_id, &reasons);
  Take(hypervisor->CommandLine(), &facts.command_line, &reasons);
  Take(hypervisor->Capabilities(), &facts.capabilities, &reasons);
  Take(hypervisor->Compiler(), &facts.compiler, &reasons);
  if (auto topology = hypervisor->Topology(); topology.ok()) {
    facts.topology = *std::move(topology);
  } else {
    AddReason(&reasons, topology.status().message());
  }
  if (auto affinity = hypervisor->HardAffinity(0); affinity.ok()) {
    for (const std::vector<uint32_t>& cpus : *affinity) {
      facts.dom0_vcpu_pinned_cpus.push_back(cpus.size() == 1 ? cpus[0] + 1 : 0);
    }
  } else {
    AddReason(&reasons, affinity.status().message());
  }
  if (auto domains = hypervisor->Domains(); domains.ok()) {
    for (const DomainInfo& domain : *domains) {
      if (!domain.dying) facts.domains.push_back({domain.domid, domain.uuid, domain.name, domain.vcpus});
    }
  } else {
    AddReason(&reasons, domains.status().message());
  }
  facts.unavailable_reason = reasons;
  return facts;
}

PmuHostFacts CollectPmuHostFacts(const XenHost& host, Hypervisor* hypervisor) {
  PmuHostFacts facts;
  facts.pvh_dom0 = host.guest_type == "PVH";
  if (hypervisor == nullptr) return facts;
  if (auto text = hypervisor->CommandLine(); text.ok()) {
    facts.command_line_known = true;
    facts.command_line = *std::move(text);
  }
  facts.console_log = hypervisor->ConsoleRing().value_or("");
  if (auto domains = hypervisor->Domains(); domains.ok()) {
    for (const DomainInfo& domain : *domains) {
      if (domain.domid == 0 || domain.dying) continue;
      facts.guests.push_back(domain.name.empty() ? absl::StrCat("domid ", domain.domid)
                                                 : absl::StrCat(domain.name, " (domid ", domain.domid, ")"));
    }
  }
  return facts;
}

}  // namespace xenprof::xen
