// Domains, pinning and facts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "fake_hypervisor.h"
#include "temp_tree.h"
#include "xenprof/xen/domain_watch.h"
#include "xenprof/xen/facts.h"
#include "xenprof/xen/facts_proto.h"
#include "xenprof/xen/pinning.h"

namespace xenprof::xen {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = DomainChange::Kind;

std::vector<std::pair<Kind, std::string>> Summary(const std::vector<DomainChange>& changes) {
  std::vector<std::pair<Kind, std::string>> summary;
  for (const DomainChange& change : changes) summary.push_back({change.kind, change.domain.name});
  return summary;
}

TEST(DomainTracker, ComeAndGo) {
  FakeHypervisor xen;
  DomainTracker tracker;
  EXPECT_THAT(Summary(FetchDomainChanges(xen, tracker).value()),
              ElementsAre(std::pair(Kind::kAdded, "Domain-0")));
  xen.domains.push_back(FakeHypervisor::Guest(1, 0xaa, "web"));
  EXPECT_THAT(Summary(FetchDomainChanges(xen, tracker).value()), ElementsAre(std::pair(Kind::kAdded, "web")));
  EXPECT_THAT(FetchDomainChanges(xen, tracker).value(), IsEmpty());
  ASSERT_NE(tracker.Find(1), nullptr);
  EXPECT_EQ(tracker.Find(1)->name, "web");
  EXPECT_EQ(tracker.Find(2), nullptr);
  xen.domains.pop_back();
  EXPECT_THAT(Summary(FetchDomainChanges(xen, tracker).value()),
              ElementsAre(std::pair(Kind::kRemoved, "web")));
  EXPECT_EQ(tracker.Find(1), nullptr);
}

TEST(DomainTracker, SameIdAnotherUuidIsAnotherDomain) {
  FakeHypervisor xen;
  DomainTracker tracker;
  xen.domains.push_back(FakeHypervisor::Guest(1, 0xaa, "web"));
  ASSERT_TRUE(FetchDomainChanges(xen, tracker).ok());
  xen.domains.back() = FakeHypervisor::Guest(1, 0xbb, "web");
  EXPECT_THAT(Summary(FetchDomainChanges(xen, tracker).value()),
              ElementsAre(std::pair(Kind::kRemoved, "web"), std::pair(Kind::kAdded, "web")));
}

TEST(DomainTracker, NamesAndDying) {
  FakeHypervisor xen;
  DomainTracker tracker;
  xen.domains.push_back(FakeHypervisor::Guest(1, 0xaa, "web"));
  ASSERT_TRUE(FetchDomainChanges(xen, tracker).ok());
  xen.domains.back().name = "web2";
  EXPECT_THAT(Summary(FetchDomainChanges(xen, tracker).value()),
              ElementsAre(std::pair(Kind::kRenamed, "web2")));
  xen.domains.back().name = "";  // xenstored restarted
  EXPECT_THAT(FetchDomainChanges(xen, tracker).value(), IsEmpty());
  EXPECT_EQ(tracker.Find(1)->name, "web2");
  xen.domains.back().dying = true;
  EXPECT_THAT(Summary(FetchDomainChanges(xen, tracker).value()),
              ElementsAre(std::pair(Kind::kRemoved, "web2")));
}

TEST(DomainTracker, WorksWithoutWatches) {
  FakeHypervisor xen;
  DomainTracker tracker;
  xen.events_status = absl::UnavailableError("no xenstored");
  EXPECT_TRUE(FetchDomainChanges(xen, tracker).ok());
  xen.control_error = EACCES;
  EXPECT_TRUE(absl::IsFailedPrecondition(FetchDomainChanges(xen, tracker).status()));
  EXPECT_NE(tracker.Find(0), nullptr);  // what was known stays
}

TEST(Pinning, RightOnlyWhenEachCpuHasItsVcpu) {
  EXPECT_TRUE(CheckPinning(std::vector<uint32_t>{0, 1}, std::vector<std::vector<uint32_t>>{{0}, {1}}).right);
  // CPU 1 offline, its vCPU pinned all the same
  EXPECT_TRUE(
      CheckPinning(std::vector<uint32_t>{0, 2}, std::vector<std::vector<uint32_t>>{{0}, {1}, {2}}).right);
  // swapped
  const PinningReport swapped =
      CheckPinning(std::vector<uint32_t>{0, 1}, std::vector<std::vector<uint32_t>>{{1}, {0}});
  EXPECT_FALSE(swapped.right);
  EXPECT_TRUE(swapped.fixable_now);
  EXPECT_THAT(swapped.commands, ElementsAre("xl vcpu-pin 0 0 0", "xl vcpu-pin 0 1 1"));
}

TEST(Pinning, UnpinnedIsWrong) {
  const PinningReport report =
      CheckPinning(std::vector<uint32_t>{0, 1}, std::vector<std::vector<uint32_t>>{{0, 1}, {0, 1}});
  EXPECT_FALSE(report.right);
  EXPECT_THAT(report.found, HasSubstr("CPU 1 interrupts dom0 vCPU 1, which may run on CPU 0-1"));
}

TEST(Pinning, FewerVcpusThanCpusCannotBeRight) {
  const PinningReport report =
      CheckPinning(std::vector<uint32_t>{0, 1, 2, 3}, std::vector<std::vector<uint32_t>>{{0}, {1}});
  EXPECT_FALSE(report.right);
  EXPECT_FALSE(report.fixable_now);
  EXPECT_THAT(report.commands, IsEmpty());
  EXPECT_THAT(report.found, HasSubstr("CPU 2 interrupts dom0 vCPU 0, which may run on CPU 0"));
}

TEST(Pinning, UnknownIsNotRight) {
  EXPECT_FALSE(CheckPinning({}, std::vector<std::vector<uint32_t>>{{0}}).right);
  EXPECT_FALSE(CheckPinning(std::vector<uint32_t>{0}, {}).right);
}

XenHost SysfsHost() {
  XenHost host;
  host.on_xen = true;
  host.dom0 = true;
  host.version = "4.17.5-sysfs";
  host.build_id = std::string(20, 's');
  return host;
}

TEST(Facts, FromXen) {
  FakeHypervisor xen;
  xen.affinity = {{0}, {0, 1}};
  const HypervisorFacts facts = CollectFacts(SysfsHost(), &xen);
  EXPECT_EQ(facts.version, "4.17.5");
  EXPECT_EQ(facts.build_id, xen.build_id);
  EXPECT_EQ(facts.topology.size(), 2u);
  EXPECT_THAT(facts.dom0_vcpu_pinned_cpus, ElementsAre(1, 0));
  EXPECT_EQ(facts.unavailable_reason, "");
  EXPECT_TRUE(facts == CollectFacts(SysfsHost(), &xen));
  xen.topology[1].core = 7;
  EXPECT_FALSE(facts == CollectFacts(SysfsHost(), &xen));
}

TEST(Facts, DomainsThatExistAreAmongThem) {
  FakeHypervisor xen;
  DomainInfo guest;
  guest.domid = 7;
  guest.uuid.fill(0xab);
  guest.name = "guest1";
  guest.vcpus = 2;
  DomainInfo dying = guest;
  dying.domid = 8;
  dying.dying = true;
  xen.domains = {guest, dying};
  const HypervisorFacts facts = CollectFacts(SysfsHost(), &xen);
  ASSERT_EQ(facts.domains.size(), 1u);
  EXPECT_EQ(facts.domains[0].name, "guest1");
  const proto::HypervisorFacts told = ToProto(facts);
  ASSERT_EQ(told.domains_size(), 1);
  EXPECT_EQ(told.domains(0).domid(), 7u);
  EXPECT_EQ(told.domains(0).uuid(), std::string(16, '\xab'));
  EXPECT_EQ(told.domains(0).vcpus(), 2u);
  // The id used again is another domain.
  xen.domains[0].uuid.fill(0xcd);
  EXPECT_FALSE(facts == CollectFacts(SysfsHost(), &xen));
}

TEST(Facts, MismatchedLibxenctrlCostsOnlyWhatItWouldHaveGiven) {
  FakeHypervisor xen;
  xen.control_error = EACCES;
  const HypervisorFacts facts = CollectFacts(SysfsHost(), &xen);
  EXPECT_EQ(facts.version, "4.17.5");
  EXPECT_NE(facts.command_line, "");
  EXPECT_THAT(facts.topology, IsEmpty());
  EXPECT_THAT(facts.unavailable_reason, HasSubstr("libxenctrl does not match this Xen"));
  EXPECT_THAT(facts.unavailable_reason, testing::Not(HasSubstr("not permitted")));
}

TEST(Facts, WithoutLibxenctrlSysfsHasSome) {
  const HypervisorFacts facts = CollectFacts(SysfsHost(), nullptr, "no module");
  EXPECT_EQ(facts.version, "4.17.5-sysfs");
  EXPECT_EQ(facts.build_id, std::string(20, 's'));
  EXPECT_THAT(facts.unavailable_reason, HasSubstr("no module"));
}

TEST(Facts, NoXen) {
  const HypervisorFacts facts = CollectFacts(XenHost(), nullptr);
  EXPECT_EQ(facts.version, "");
  EXPECT_EQ(facts.unavailable_reason, "not running on Xen");
}

TEST(Facts, ErrorsKeepTheirMeaning) {
  EXPECT_TRUE(absl::IsPermissionDenied(XenCallError(XenCallKind::kOpen, "c", EACCES)));
  EXPECT_TRUE(absl::IsUnavailable(XenCallError(XenCallKind::kOpen, "c", ENOENT)));
  EXPECT_TRUE(absl::IsFailedPrecondition(XenCallError(XenCallKind::kControl, "c", EACCES)));
  EXPECT_TRUE(absl::IsPermissionDenied(XenCallError(XenCallKind::kControl, "c", EPERM)));
  EXPECT_TRUE(absl::IsUnimplemented(XenCallError(XenCallKind::kControl, "c", ENOSYS)));
  EXPECT_TRUE(absl::IsNotFound(XenCallError(XenCallKind::kControl, "c", ESRCH)));
  EXPECT_TRUE(absl::IsUnavailable(XenCallError(XenCallKind::kControl, "c", ENOMEM)));
  EXPECT_TRUE(absl::IsUnknown(XenCallError(XenCallKind::kVersion, "c", EACCES)));
}

TEST(PmuHostFacts, GuestsByName) {
  FakeHypervisor xen;
  xen.domains.push_back(FakeHypervisor::Guest(1, 1, "web"));
  xen.domains.push_back(FakeHypervisor::Guest(2, 2, ""));
  xen.domains.push_back(FakeHypervisor::Guest(3, 3, "gone"));
  xen.domains.back().dying = true;
  const PmuHostFacts facts = CollectPmuHostFacts(SysfsHost(), &xen);
  EXPECT_THAT(facts.guests, ElementsAre("web (domid 1)", "domid 2"));
  EXPECT_TRUE(facts.command_line_known);
  EXPECT_FALSE(CollectPmuHostFacts(SysfsHost(), nullptr).command_line_known);
}

TEST(FactsProto, RoundTrip) {
  FakeHypervisor xen;
  const HypervisorFacts facts = CollectFacts(SysfsHost(), &xen);
  proto::HypervisorFacts parsed;
  ASSERT_TRUE(parsed.ParseFromString(ToProto(facts).SerializeAsString()));
  EXPECT_EQ(parsed.version(), "4.17.5");
  EXPECT_EQ(parsed.build_id(), xen.build_id);
  ASSERT_EQ(parsed.topology_size(), 2);
  EXPECT_EQ(parsed.topology(1).core(), 1u);
  ASSERT_EQ(parsed.dom0_vcpu_pinned_cpus_size(), 2);
  EXPECT_EQ(parsed.dom0_vcpu_pinned_cpus(1), 2u);
  EXPECT_EQ(ToProto(ModeDecision{ModeKind::kDom0Only, "why", ""}).kind(), proto::Mode::DOM0_ONLY);
}

// -- the host's own files
// ----------------------------------------------------------------------------------------------

TEST(XenHost, NoXen) {
  TempTree tree;
  const XenHost host = DetectXenHost(tree.root());
  EXPECT_FALSE(host.on_xen);
  EXPECT_THAT(host.summary, HasSubstr("Not running on Xen"));
}

void WriteXen(const TempTree& tree) {
  tree.Write("/sys/hypervisor/type", "xen\n");
  tree.Write("/sys/hypervisor/guest_type", "PV\n");
  tree.Write("/sys/hypervisor/version/major", "4\n");
  tree.Write("/sys/hypervisor/version/minor", "17\n");
  tree.Write("/sys/hypervisor/version/extra", ".5\n");
}

TEST(XenHost, Dom0ByXenfsElseStartFlagsElseUuid) {
  TempTree tree;
  WriteXen(tree);
  EXPECT_FALSE(DetectXenHost(tree.root()).dom0.has_value());
  tree.Write("/sys/hypervisor/uuid", "00000000-0000-0000-0000-000000000000\n");
  EXPECT_EQ(DetectXenHost(tree.root()).dom0, true);
  tree.Write("/sys/hypervisor/start_flags/initdomain", "0\n");
  EXPECT_EQ(DetectXenHost(tree.root()).dom0, false);
  tree.Write("/proc/xen/capabilities", "control_d\n");
  const XenHost host = DetectXenHost(tree.root());
  EXPECT_EQ(host.dom0, true);
  EXPECT_EQ(host.version, "4.17.5");
  EXPECT_EQ(host.guest_type, "PV");
  tree.Write("/proc/xen/capabilities", "");
  EXPECT_EQ(DetectXenHost(tree.root()).dom0, false);
}

TEST(XenHost, BuildIdCutAtAZeroByteIsNotOne) {
  TempTree tree;
  WriteXen(tree);
  tree.Write("/sys/hypervisor/properties/buildid", std::string(20, '\x8f'));
  EXPECT_EQ(DetectXenHost(tree.root()).build_id.size(), 20u);
  tree.Write("/sys/hypervisor/properties/buildid", std::string(7, '\x8f'));
  EXPECT_EQ(DetectXenHost(tree.root()).build_id, "");
}

TEST(KernelHasHypervisorCallchain, WholeNamesOnly) {
  TempTree tree;
  EXPECT_FALSE(KernelHasHypervisorCallchain(tree.root()).has_value());
  tree.Write("/proc/kallsyms", "");
  EXPECT_FALSE(KernelHasHypervisorCallchain(tree.root()).has_value());
  tree.Write("/proc/kallsyms", "ffffffff81000000 T _text\nffffffff81000010 t xen_hypervisor_callchain_not\n");
  EXPECT_EQ(KernelHasHypervisorCallchain(tree.root()), false);
  tree.Write("/proc/kallsyms", "0000000000000000 T _text\n0000000000000000 t xen_hypervisor_callchain\n");
  EXPECT_EQ(KernelHasHypervisorCallchain(tree.root()), true);
  tree.Write("/proc/kallsyms", "0000000000000000 t xen_hypervisor_callchain.constprop.0\n");
  EXPECT_EQ(KernelHasHypervisorCallchain(tree.root()), true);
}

TEST(OpenHypervisor, SaysWhyNot) {
  TempTree tree;
  const auto missing = OpenHypervisor({.module_dir = tree.root()});
  // Elsewhere on this machine there may be one, which then cannot open Xen.
  EXPECT_FALSE(missing.ok());
  tree.Write("/xenprof-xenctrl.so", "no module at all");
  const auto broken = OpenHypervisor({.module_dir = tree.root()});
  EXPECT_TRUE(absl::IsUnavailable(broken.status()));
  EXPECT_THAT(std::string(broken.status().message()), HasSubstr("cannot load"));
}

#ifdef XENPROF_BUILT_MODULE_DIR
TEST(OpenHypervisor, TheBuiltModuleLoadsAndFindsNoXenHere) {
  if (DetectXenHost().on_xen) GTEST_SKIP() << "this is a Xen host";
  const auto opened = OpenHypervisor({.module_dir = XENPROF_BUILT_MODULE_DIR});
  EXPECT_TRUE(absl::IsUnavailable(opened.status()) || absl::IsPermissionDenied(opened.status()))
      << opened.status();
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("xc_interface_open"));
}
#endif

}  // namespace
}  // namespace xenprof::xen
