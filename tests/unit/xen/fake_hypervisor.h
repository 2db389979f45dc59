// A Xen whose answers, and whose refusals, a test chooses. Refusals carry the words that libxenctrl's errno
// gets.
#ifndef TESTS_UNIT_XEN_FAKE_HYPERVISOR_H_
#define TESTS_UNIT_XEN_FAKE_HYPERVISOR_H_

#include <optional>
#include <string>
#include <vector>

#include "xenprof/xen/hypervisor.h"
#include "xenprof/xen/hypervisor_error.h"

namespace xenprof::xen {

class FakeHypervisor : public Hypervisor {
 public:
  std::string version = "4.17.5";
  std::string build_id =
      std::string("\x8f\x13\x3d\xbb\xef\xb3\x0b\xe6\x30\x9f\x04\x30\xa5\x01\x9e\x38\x19\x51\xf1\xd6", 20);
  std::string command_line = "dom0_mem=1536M dom0_vcpus_pin vpmu=on watchdog=0";
  std::string console;
  std::optional<std::string> config = "CONFIG_FRAME_POINTER=y\n";
  std::vector<CpuTopology> topology = {{0, 0, 0, 0}, {1, 1, 0, 0}};
  std::vector<DomainInfo> domains = {Dom0()};
  std::vector<std::vector<uint32_t>> affinity = {{0}, {1}};
  int control_error = 0;  // errno of every sysctl and domctl: EACCES when libxenctrl is of another Xen
  int version_error = 0;  // errno of every xen_version call
  int pending_events = 0;
  absl::Status events_status;

  static DomainInfo Dom0() {
    DomainInfo domain;
    domain.name = "Domain-0";
    domain.vcpus = 2;
    domain.max_vcpu_id = 1;
    return domain;
  }
  static DomainInfo Guest(uint32_t domid, uint8_t uuid, const std::string& name) {
    DomainInfo domain;
    domain.domid = domid;
    domain.uuid.fill(uuid);
    domain.name = name;
    domain.vcpus = 1;
    return domain;
  }

  absl::StatusOr<std::string> Version() override { return FromVersion(version); }
  absl::StatusOr<std::string> Changeset() override { return FromVersion("git:abc"); }
  absl::StatusOr<std::string> BuildId() override { return FromVersion(build_id); }
  absl::StatusOr<std::string> CommandLine() override { return FromVersion(command_line); }
  absl::StatusOr<std::string> Capabilities() override { return FromVersion("xen-3.0-x86_64"); }
  absl::StatusOr<std::string> Compiler() override { return FromVersion("gcc 12"); }
  absl::StatusOr<std::vector<CpuTopology>> Topology() override { return Control(topology, "xc_cputopoinfo"); }
  absl::StatusOr<PhysicalInfo> Physical() override { return Control(PhysicalInfo{}, "xc_physinfo"); }
  absl::StatusOr<std::vector<DomainInfo>> Domains() override {
    return Control(domains, "xc_domain_getinfolist");
  }
  absl::StatusOr<std::vector<std::vector<uint32_t>>> HardAffinity(uint32_t) override {
    return Control(affinity, "xc_vcpu_getaffinity");
  }
  absl::StatusOr<std::vector<Livepatch>> Livepatches() override {
    return Control(std::vector<Livepatch>(), "xc_livepatch_list");
  }
  absl::StatusOr<std::string> ConsoleRing() override { return Control(console, "xc_readconsolering"); }
  absl::StatusOr<std::string> BuildConfig() override {
    if (!config) return absl::UnimplementedError("no hypfs");
    return *config;
  }
  absl::StatusOr<int> DomainWatchFd() override { return absl::UnavailableError("xenstored does not listen"); }
  absl::StatusOr<bool> TakeDomainEvents() override {
    if (!events_status.ok()) return events_status;
    const bool any = pending_events > 0;
    pending_events = 0;
    return any;
  }

 private:
  absl::StatusOr<std::string> FromVersion(const std::string& text) const {
    if (version_error != 0) return XenCallError(XenCallKind::kVersion, "xc_version", version_error);
    return text;
  }
  template <typename T>
  absl::StatusOr<T> Control(const T& value, const char* call) const {
    if (control_error != 0) return XenCallError(XenCallKind::kControl, call, control_error);
    return value;
  }
};

}  // namespace xenprof::xen

#endif  // TESTS_UNIT_XEN_FAKE_HYPERVISOR_H_
