#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

#include "fake_libxenctrl.h"
#include "xenprof/xen/facts.h"
#include "xenprof/xen/hypervisor.h"

extern "C" xenprof::xen::Hypervisor* xenprof_open_xenctrl(uint32_t abi, absl::Status* status);

namespace xenprof::xen {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class XenctrlTest : public testing::Test {
 protected:
  XenctrlTest() { fake_libxenctrl.Reset(); }
  ~XenctrlTest() override {
    xen_.reset();
    EXPECT_EQ(fake_libxenctrl.open_handles, 0);
  }
  Hypervisor& Open() {
    absl::Status status;
    xen_.reset(xenprof_open_xenctrl(kHypervisorModuleAbi, &status));
    EXPECT_TRUE(xen_ != nullptr) << status;
    return *xen_;
  }
  std::unique_ptr<Hypervisor> xen_;
};

TEST_F(XenctrlTest, OtherAbiIsRefused) {
  absl::Status status;
  EXPECT_EQ(xenprof_open_xenctrl(kHypervisorModuleAbi + 1, &status), nullptr);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
}

TEST_F(XenctrlTest, OpenErrors) {
  for (const auto& [error, code] : {std::pair{EACCES, absl::StatusCode::kPermissionDenied},
                                    std::pair{ENOENT, absl::StatusCode::kUnavailable}}) {
    fake_libxenctrl.open_error = error;
    absl::Status status;
    EXPECT_EQ(xenprof_open_xenctrl(kHypervisorModuleAbi, &status), nullptr);
    EXPECT_EQ(status.code(), code) << status;
  }
}

TEST_F(XenctrlTest, Versions) {
  Hypervisor& xen = Open();
  EXPECT_EQ(xen.Version().value(), "4.17.5");
  EXPECT_EQ(xen.BuildId().value(), std::string(20, '\x8f'));
  EXPECT_EQ(xen.CommandLine().value(), "vpmu=on");
  EXPECT_EQ(xen.Compiler().value(), std::string(64, 'c'));  // an array filled to its end
  fake_libxenctrl.command_line = std::string(2000, 'x');
  EXPECT_EQ(xen.CommandLine().value().size(), 1024u);
  fake_libxenctrl.extra = std::string(50, 'x');
  EXPECT_EQ(xen.Version().value().size(), 4u + 16u);
  fake_libxenctrl.errors["xc_version"] = ENODATA;
  EXPECT_TRUE(absl::IsNotFound(xen.BuildId().status()));
}

TEST_F(XenctrlTest, OfflineCpusAreLeftOut) {
  Hypervisor& xen = Open();
  fake_libxenctrl.cpus = 4;
  fake_libxenctrl.offline = {1, 3};
  const auto topology = xen.Topology().value();
  ASSERT_EQ(topology.size(), 2u);
  EXPECT_EQ(topology[1].cpu, 2u);
}

TEST_F(XenctrlTest, ManyDomains) {
  Hypervisor& xen = Open();
  fake_libxenctrl.domains = 600;  // several batches, ids with gaps
  const auto domains = xen.Domains().value();
  ASSERT_EQ(domains.size(), 600u);
  EXPECT_EQ(domains[599].domid, 1198u);
  EXPECT_TRUE(domains[0].running);
  EXPECT_TRUE(domains[1].dying);
  EXPECT_TRUE(domains[2].hvm);
  EXPECT_EQ(domains[1].uuid[0], 1);
}

TEST_F(XenctrlTest, Affinity) {
  Hypervisor& xen = Open();
  fake_libxenctrl.cpus = 16;
  fake_libxenctrl.dom0_vcpus = 10;
  const auto affinity = xen.HardAffinity(0).value();
  ASSERT_EQ(affinity.size(), 10u);
  EXPECT_THAT(affinity[9], ElementsAre(9));
  EXPECT_TRUE(absl::IsNotFound(xen.HardAffinity(1).status()));  // the list answers with domain 2
}

TEST_F(XenctrlTest, ConsoleLongerThanOneRead) {
  Hypervisor& xen = Open();
  for (int i = 0; i < 30000; ++i) fake_libxenctrl.console += "(XEN) line " + std::to_string(i) + "\n";
  EXPECT_EQ(xen.ConsoleRing().value(), fake_libxenctrl.console);
}

TEST_F(XenctrlTest, Livepatches) {
  const auto patches = Open().Livepatches().value();
  ASSERT_EQ(patches.size(), 2u);
  EXPECT_EQ(patches[0].name, "lp1");
  EXPECT_EQ(patches[0].state, "applied");
  EXPECT_EQ(patches[1].name, "lp2");
  EXPECT_EQ(patches[1].state, "checked");
}

TEST_F(XenctrlTest, AnotherXensLibraryIsSaidToBeThat) {
  Hypervisor& xen = Open();
  for (const char* function : {"xc_cputopoinfo", "xc_physinfo", "xc_domain_getinfolist", "xc_readconsolering",
                               "xc_livepatch_list_get_sizes", "xc_vcpu_getaffinity"}) {
    fake_libxenctrl.errors[function] = EACCES;
  }
  for (const absl::Status& status :
       {xen.Topology().status(), xen.Physical().status(), xen.Domains().status(), xen.ConsoleRing().status(),
        xen.Livepatches().status(), xen.HardAffinity(0).status()}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("libxenctrl does not match this Xen"));
  }
  XenHost host;
  host.on_xen = true;
  const HypervisorFacts facts = CollectFacts(host, &xen);
  EXPECT_EQ(facts.command_line, "vpmu=on");  // no interface version is in the way of this one
  EXPECT_THAT(facts.unavailable_reason, HasSubstr("libxenctrl does not match this Xen"));
}

TEST_F(XenctrlTest, EveryCallSurvivesEveryErrno) {
  Hypervisor& xen = Open();
  for (const char* function : {"xc_version", "xc_cputopoinfo", "xc_physinfo", "xc_domain_getinfolist",
                               "xc_readconsolering", "xc_livepatch_list_get_sizes", "xc_livepatch_list",
                               "xc_vcpu_getaffinity", "xc_get_max_cpus", "xenhypfs_open", "xenhypfs_read"}) {
    for (int error : {EPERM, EACCES, ENOSYS, ESRCH, EINVAL, ENOMEM, EFAULT, EOPNOTSUPP}) {
      fake_libxenctrl.errors = {{function, error}};
      XenHost host;
      host.on_xen = true;
      CollectFacts(host, &xen);
      CollectPmuHostFacts(host, &xen);
      xen.Physical().status().IgnoreError();
      xen.Livepatches().status().IgnoreError();
      xen.BuildConfig().status().IgnoreError();
    }
  }
}

TEST_F(XenctrlTest, WithoutXenstoredDomainsHaveNoNames) {
  Hypervisor& xen = Open();
  EXPECT_EQ(xen.Domains().value()[0].name, "");
  EXPECT_TRUE(absl::IsUnavailable(xen.DomainWatchFd().status()));
  EXPECT_TRUE(absl::IsUnavailable(xen.TakeDomainEvents().status()));
}

}  // namespace
}  // namespace xenprof::xen
