// Facts into the chunk's words.
#ifndef XENPROF_XEN_FACTS_PROTO_H_
#define XENPROF_XEN_FACTS_PROTO_H_

#include "chunk.pb.h"
#include "xenprof/xen/facts.h"
#include "xenprof/xen/mode.h"

namespace xenprof::xen {

inline proto::HypervisorFacts ToProto(const HypervisorFacts& facts) {
  proto::HypervisorFacts out;
  out.set_version(facts.version);
  out.set_changeset(facts.changeset);
  out.set_build_id(facts.build_id);
  out.set_command_line(facts.command_line);
  out.set_capabilities(facts.capabilities);
  out.set_compiler(facts.compiler);
  for (const CpuTopology& cpu : facts.topology) {
    proto::HypervisorFacts::Topology* added = out.add_topology();
    added->set_cpu(cpu.cpu);
    added->set_core(cpu.core);
    added->set_socket(cpu.socket);
    added->set_node(cpu.node);
  }
  for (uint32_t pinned : facts.dom0_vcpu_pinned_cpus) out.add_dom0_vcpu_pinned_cpus(pinned);
  out.set_unavailable_reason(facts.unavailable_reason);
  for (const HypervisorFacts::Domain& domain : facts.domains) {
    proto::HypervisorFacts::Guest* added = out.add_domains();
    added->set_domid(domain.domid);
    added->set_uuid(domain.uuid.data(), domain.uuid.size());
    added->set_name(domain.name);
    added->set_vcpus(domain.vcpus);
  }
  return out;
}

inline proto::Mode ToProto(const ModeDecision& mode) {
  proto::Mode out;
  out.set_kind(static_cast<proto::Mode::Kind>(mode.kind));
  out.set_reason(mode.reason);
  out.set_vpmu(mode.vpmu);
  return out;
}

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_FACTS_PROTO_H_
