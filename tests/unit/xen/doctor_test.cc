// The hosts of the facts page as trees of files, a Xen and a PMU: each has one fault, which has to come
// first.
#include "xenprof/xen/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "fake_hypervisor.h"
#include "fake_pmu_files.h"
#include "temp_tree.h"
#include "xenprof/xen/fix_lines.h"

namespace xenprof::xen {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class DoctorTest : public testing::Test {
 protected:
  DoctorTest() {
    tree_.Write("/etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n");
    tree_.Write("/proc/sys/kernel/perf_event_paranoid", "2\n");
    tree_.Write("/proc/sys/kernel/kptr_restrict", "0\n");
    tree_.Write("/proc/sys/kernel/perf_event_max_sample_rate", "100000\n");
    tree_.Write("/proc/sys/kernel/perf_event_mlock_kb", "516\n");
    tree_.Write("/proc/kallsyms", "ffffffff81000000 T _text\nffffffff81024fd0 t xen_hypervisor_callchain\n");
    tree_.Write("/sys/devices/system/cpu/online", "0-1\n");
    inputs_.root = tree_.root();
    inputs_.perf = [this](const PerfProbeRequest& request) {
      return request.hardware ? hardware_ : PerfProbeResult{.count = 1, .samples = 1};
    };
  }
  // The lab as its README has it: nothing is wrong with it.
  void MakeLab() {
    tree_.Write("/sys/hypervisor/type", "xen\n");
    tree_.Write("/sys/hypervisor/guest_type", "PV\n");
    tree_.Write("/sys/hypervisor/version/major", "4\n");
    tree_.Write("/sys/hypervisor/version/minor", "17\n");
    tree_.Write("/sys/hypervisor/version/extra", ".5\n");
    tree_.Write("/proc/xen/capabilities", "control_d\n");
    tree_.Write("/proc/xen/xensyms", "ffff82d040200000 T _stext\n");
    inputs_.hypervisor = &xen_;
    inputs_.pmu_files = &files_;
  }
  void MakeStock() {
    MakeLab();
    files_.known_features = 0x7;
    hardware_ = {.error = ENOENT};
    tree_.Write("/proc/kallsyms", "ffffffff81000000 T _text\n");
    xen_.config = "# CONFIG_FRAME_POINTER is not set\n";
  }
  const Finding& Get(const std::vector<Finding>& findings, const std::string& id) {
    for (const Finding& finding : findings) {
      if (finding.id == id) return finding;
    }
    ADD_FAILURE() << "no finding " << id;
    return findings[0];
  }
  // Everything but the first is less grave, or follows from it and says so.
  static void ExpectOneError(const std::vector<Finding>& findings) {
    for (size_t i = 1; i < findings.size(); ++i)
      EXPECT_NE(findings[i].severity, Severity::kError) << findings[i].id;
  }

  TempTree tree_;
  FakeHypervisor xen_;
  FakePmuFiles files_;
  PerfProbeResult hardware_{.count = 1000, .samples = 3};
  DoctorInputs inputs_;
};

// -- the six
// -----------------------------------------------------------------------------------------------------------

TEST_F(DoctorTest, NoXen) {
  const std::vector<Finding> findings = RunDoctor(inputs_);
  EXPECT_EQ(findings[0].id, "dom0");
  EXPECT_EQ(findings[0].severity, Severity::kInfo);
  EXPECT_THAT(findings[0].found, HasSubstr("Not a Xen host"));
  for (const Finding& finding : findings) {
    EXPECT_THAT(finding.id, Not(testing::AnyOf("vpmu", "pinning", "libxenctrl", "xen_stacks")));
  }
  EXPECT_EQ(WorstSeverity(findings), Severity::kInfo);
}

TEST_F(DoctorTest, NoXenComesFirstEvenWhenLinuxHasFaults) {
  tree_.Write("/proc/sys/kernel/kptr_restrict", "2\n");
  const std::vector<Finding> findings = RunDoctor(inputs_);
  EXPECT_EQ(findings[0].id, "dom0");
  EXPECT_EQ(findings[1].id, "kptr_restrict");
  EXPECT_EQ(WorstSeverity(findings), Severity::kWarning);
}

TEST_F(DoctorTest, Stock) {
  MakeStock();
  const std::vector<Finding> findings = RunDoctor(inputs_);
  EXPECT_EQ(findings[0].id, "pmu");
  EXPECT_EQ(findings[0].severity, Severity::kError);
  EXPECT_THAT(findings[0].found, HasSubstr("cpu-clock works"));
  ExpectOneError(findings);
  EXPECT_EQ(findings[1].id, "xen_stacks");
  EXPECT_THAT(findings[1].found, HasSubstr("no hypervisor stacks"));
  EXPECT_EQ(Get(findings, "kernel_stacks").severity, Severity::kInfo);
  EXPECT_EQ(files_.features, 0u);
}

TEST_F(DoctorTest, Lab) {
  MakeLab();
  hardware_.max_xen_frames = 4;
  const std::vector<Finding> findings = RunDoctor(inputs_);
  EXPECT_EQ(WorstSeverity(findings), Severity::kInfo);
  EXPECT_THAT(Get(findings, "pmu").found, HasSubstr("4 frames of Xen"));
  EXPECT_THAT(files_.writes, ElementsAre("features=0x8\n", "features=0x0\n"));
}

TEST_F(DoctorTest, LabUnpinned) {
  MakeLab();
  xen_.affinity = {{0, 1}, {0, 1}};
  const std::vector<Finding> findings = RunDoctor(inputs_);
  EXPECT_EQ(findings[0].id, "pinning");
  EXPECT_EQ(findings[0].severity, Severity::kError);
  ExpectOneError(findings);
  EXPECT_THAT(findings[0].commands,
              ElementsAre("xl vcpu-pin 0 0 0", "xl vcpu-pin 0 1 1",
                          "echo 'GRUB_CMDLINE_XEN_DEFAULT=\"$GRUB_CMDLINE_XEN_DEFAULT dom0_vcpus_pin\"' >> "
                          "/etc/default/grub.d/xenprof.cfg",
                          "update-grub", "reboot"));
}

TEST_F(DoctorTest, VpmuOff) {
  MakeLab();
  files_.enabled = false;
  xen_.command_line = "vpmu=on vpmu=off watchdog=0 dom0_vcpus_pin";
  const std::vector<Finding> findings = RunDoctor(inputs_);
  EXPECT_EQ(findings[0].id, "vpmu");
  EXPECT_THAT(findings[0].found, HasSubstr("off unless Xen's command line turns it on"));
  EXPECT_THAT(findings[0].commands, Contains(HasSubstr("vpmu=on watchdog=0")));
  ExpectOneError(findings);
  EXPECT_THAT(files_.writes, IsEmpty());
}

TEST_F(DoctorTest, WatchdogOn) {
  MakeLab();
  files_.enabled = false;
  xen_.command_line = "vpmu=on watchdog=1";
  xen_.console = "(XEN) NMI watchdog is enabled. Turning VPMU off.\n";
  const std::vector<Finding> findings = RunDoctor(inputs_);
  EXPECT_EQ(findings[0].id, "watchdog");
  EXPECT_EQ(findings[0].severity, Severity::kError);
  EXPECT_THAT(findings[0].commands, Contains(HasSubstr("watchdog=0")));
  ExpectOneError(findings);
  EXPECT_EQ(Get(findings, "vpmu").severity, Severity::kSkipped);
}

// -- other hosts
// -------------------------------------------------------------------------------------------------------

TEST_F(DoctorTest, UnsupportedProcessor) {
  MakeLab();
  files_.enabled = false;
  xen_.command_line = "vpmu=on";
  xen_.console = "(XEN) VPMU: Unknown CPU vendor: 9. Turning VPMU off.\n";
  const std::vector<Finding> findings = RunDoctor(inputs_);
  EXPECT_EQ(findings[0].id, "vpmu");
  EXPECT_THAT(findings[0].found, HasSubstr("processor"));
  EXPECT_THAT(findings[0].commands, IsEmpty());
}

TEST_F(DoctorTest, PvhDom0) {
  MakeLab();
  tree_.Write("/sys/hypervisor/guest_type", "PVH\n");
  files_.enabled = false;
  const std::vector<Finding> findings = RunDoctor(inputs_);
  EXPECT_EQ(findings[0].id, "dom0");
  EXPECT_EQ(findings[0].severity, Severity::kError);
  EXPECT_THAT(findings[0].commands, Contains(HasSubstr("dom0=pv")));
  ExpectOneError(findings);
}

TEST_F(DoctorTest, WatchdogOnAndNoVpmuNamesBoth) {
  MakeLab();
  files_.enabled = false;
  xen_.command_line = "watchdog";
  const std::vector<Finding> findings = RunDoctor(inputs_);
  EXPECT_EQ(findings[0].id, "vpmu");
  EXPECT_EQ(findings[1].id, "watchdog");
  EXPECT_EQ(findings[1].severity, Severity::kWarning);
}

TEST_F(DoctorTest, GuestInTheWay) {
  MakeLab();
  files_.guest_holds_vpmu = true;
  xen_.domains.push_back(FakeHypervisor::Guest(1, 1, "guest1"));
  const std::vector<Finding> findings = RunDoctor(inputs_);
  EXPECT_EQ(findings[0].id, "mode_all");
  EXPECT_THAT(findings[0].found, HasSubstr("guest1 (domid 1)"));
  EXPECT_THAT(findings[0].commands, ElementsAre("systemctl enable xenprofd-vpmu-boot.service", "reboot"));
  EXPECT_EQ(Get(findings, "xen_stacks").severity, Severity::kWarning);
}

TEST_F(DoctorTest, UnpatchedKernelOnPatchedXen) {
  MakeLab();
  tree_.Write("/proc/kallsyms", "ffffffff81000000 T _text\n");
  EXPECT_EQ(RunDoctor(inputs_)[0].id, "kernel_stacks");
}

TEST_F(DoctorTest, NoFramePointers) {
  MakeLab();
  xen_.config = "# CONFIG_FRAME_POINTER is not set\n";
  EXPECT_EQ(RunDoctor(inputs_)[0].id, "frame_pointers");
  xen_.config = std::nullopt;
  tree_.Write("/boot/xen-4.17-amd64.config", "CONFIG_HVM=y\n");
  EXPECT_EQ(RunDoctor(inputs_)[0].id, "frame_pointers");
  tree_.Write("/boot/xen-4.17-amd64.config", "CONFIG_FRAME_POINTER=y\n");
  EXPECT_EQ(WorstSeverity(RunDoctor(inputs_)), Severity::kInfo);
}

TEST_F(DoctorTest, Domu) {
  MakeLab();
  tree_.Write("/proc/xen/capabilities", "");
  const std::vector<Finding> findings = RunDoctor(inputs_);
  EXPECT_EQ(findings[0].id, "dom0");
  EXPECT_EQ(findings[0].severity, Severity::kError);
}

TEST_F(DoctorTest, NoSymbols) {
  MakeLab();
  std::filesystem::remove(tree_.root() + "/proc/xen/xensyms");
  std::vector<Finding> findings = RunDoctor(inputs_);
  EXPECT_EQ(findings[0].id, "symbols");
  EXPECT_THAT(findings[0].commands, ElementsAre("apt-get install xen-hypervisor-4.17-amd64-dbg"));
  tree_.Write("/boot/xen-4.17.map", "ffff82d040200000 T _stext\n");
  EXPECT_EQ(Get(RunDoctor(inputs_), "symbols").severity, Severity::kInfo);
}

TEST_F(DoctorTest, LibxenctrlMismatchSkipsWhatNeedsIt) {
  MakeLab();
  xen_.control_error = EACCES;
  const std::vector<Finding> findings = RunDoctor(inputs_);
  EXPECT_EQ(findings[0].id, "libxenctrl");
  EXPECT_THAT(findings[0].found, HasSubstr("does not match this Xen"));
  EXPECT_EQ(Get(findings, "pinning").severity, Severity::kSkipped);
  ExpectOneError(findings);
}

TEST_F(DoctorTest, NoLibxenctrl) {
  MakeLab();
  inputs_.hypervisor = nullptr;
  inputs_.hypervisor_problem = "xenprof-xenctrl.so is not installed";
  EXPECT_EQ(RunDoctor(inputs_)[0].id, "libxenctrl");
  files_.enabled = false;  // then the cause cannot be told
  EXPECT_THAT(RunDoctor(inputs_)[0].found, HasSubstr("could not be read"));
}

TEST_F(DoctorTest, OneCpuThatGivesNothing) {
  MakeLab();
  inputs_.perf = [](const PerfProbeRequest& request) {
    PerfProbeResult result{.count = 100, .samples = 1};
    if (request.hardware && request.cpu == 1) result.samples = 0;
    return result;
  };
  const Finding pmu = Get(RunDoctor(inputs_), "pmu");
  EXPECT_EQ(pmu.severity, Severity::kError);
  EXPECT_THAT(pmu.found, HasSubstr("no sample on CPU 1"));
}

TEST_F(DoctorTest, VpmuGlobal) {
  MakeLab();
  files_.enabled = false;
  xen_.command_line = "vpmu=global dom0_vcpus_pin";
  const std::vector<Finding> findings = RunDoctor(inputs_);
  EXPECT_EQ(WorstSeverity(findings), Severity::kInfo);
  EXPECT_EQ(Get(findings, "vpmu").severity, Severity::kOk);
  EXPECT_THAT(files_.writes, IsEmpty());
}

// -- what it may do
// ----------------------------------------------------------------------------------------------------

TEST_F(DoctorTest, WithoutProbeNothingIsWritten) {
  MakeLab();
  inputs_.probe = false;
  const std::vector<Finding> findings = RunDoctor(inputs_);
  EXPECT_THAT(files_.writes, IsEmpty());
  EXPECT_EQ(Get(findings, "xen_stacks").severity, Severity::kInfo);
}

TEST_F(DoctorTest, NoProbeWhereTheFeatureIsOnAlready) {
  MakeLab();
  files_.features = 0xc;
  files_.mode = PmuMode::kAll;
  RunDoctor(inputs_);
  EXPECT_THAT(files_.writes, IsEmpty());
}

TEST_F(DoctorTest, ProbeKeepsOtherBits) {
  MakeLab();
  files_.features = 0x5;
  RunDoctor(inputs_);
  EXPECT_THAT(files_.writes, ElementsAre("features=0xd\n", "features=0x5\n"));
}

TEST_F(DoctorTest, NeverAdvisesAgainstNmiWatchdogAlone) {
  tree_.Write("/proc/sys/kernel/nmi_watchdog", "1\n");
  for (int host = 0; host < 4; ++host) {
    if (host > 0) MakeLab();
    files_.enabled = host != 2;
    xen_.command_line = host == 3 ? "watchdog=1 vpmu=on" : "vpmu=off";
    for (const Finding& finding : RunDoctor(inputs_)) {
      for (const std::string& command : finding.commands)
        EXPECT_THAT(command, Not(HasSubstr("nmi_watchdog")));
      EXPECT_THAT(finding.advice, Not(HasSubstr("nmi_watchdog")));
    }
  }
}

TEST_F(DoctorTest, SecureBootExplainsInsteadOfFixing) {
  MakeLab();
  tree_.Write("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
              std::string("\6\0\0\0\1", 5));
  files_.enabled = false;
  xen_.command_line = "vpmu=off";
  const std::vector<Finding> findings = RunDoctor(inputs_);
  EXPECT_EQ(findings[0].id, "vpmu");
  EXPECT_THAT(findings[0].commands, IsEmpty());
  EXPECT_THAT(findings[0].advice, HasSubstr("Secure boot is on"));
}

TEST_F(DoctorTest, Lockdown) {
  tree_.Write("/sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
  EXPECT_EQ(Get(RunDoctor(inputs_), "lockdown").severity, Severity::kError);
  tree_.Write("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
  EXPECT_EQ(Get(RunDoctor(inputs_), "lockdown").severity, Severity::kOk);
}

TEST_F(DoctorTest, Limits) {
  tree_.Write("/proc/sys/kernel/perf_event_max_sample_rate", "50\n");
  inputs_.ring_bytes_per_cpu = 4 << 20;
  inputs_.privileged = false;
  const std::vector<Finding> findings = RunDoctor(inputs_);
  EXPECT_EQ(Get(findings, "perf_event_max_sample_rate").severity, Severity::kWarning);
  EXPECT_THAT(Get(findings, "perf_event_mlock_kb").commands,
              ElementsAre("sysctl -w kernel.perf_event_mlock_kb=4100"));
  EXPECT_EQ(Get(findings, "pmu").severity, Severity::kSkipped);
}

TEST_F(DoctorTest, AnEmptyHostIsSurvived) {
  TempTree empty;
  inputs_.root = empty.root();
  inputs_.perf = [](const PerfProbeRequest&) { return PerfProbeResult{.error = ENOSYS}; };
  EXPECT_FALSE(RunDoctor(inputs_).empty());
}

// -- commands
// ----------------------------------------------------------------------------------------------------------

TEST(FixLines, PerDistribution) {
  TempTree tree;
  EXPECT_EQ(DetectPlatform(tree.root()).distribution, Distribution::kUnknown);
  tree.Write("/etc/os-release", "ID=qubes\nID_LIKE=\"rhel fedora\"\n");
  EXPECT_EQ(DetectPlatform(tree.root()).distribution, Distribution::kGrub2);
  tree.Write("/etc/os-release", "ID=ubuntu\nID_LIKE=debian\n");
  EXPECT_EQ(DetectPlatform(tree.root()).distribution, Distribution::kDebian);
  tree.Write("/etc/os-release", "NAME=\"XCP-ng\"\nID=\"xenenterprise\"\nID_LIKE=\"centos rhel fedora\"\n");
  EXPECT_EQ(DetectPlatform(tree.root()).distribution, Distribution::kXenServer);
  tree.Write("/etc/os-release", "ID=unheard-of\n");
  tree.Write("/opt/xensource/libexec/xen-cmdline", "");
  EXPECT_EQ(DetectPlatform(tree.root()).distribution, Distribution::kXenServer);
  EXPECT_THAT(XenOptionCommands(Distribution::kXenServer, "vpmu=on watchdog=0"),
              ElementsAre("/opt/xensource/libexec/xen-cmdline --set-xen vpmu=on",
                          "/opt/xensource/libexec/xen-cmdline --set-xen watchdog=0", "reboot"));
  EXPECT_THAT(XenOptionCommands(Distribution::kUnknown, "vpmu=on"), IsEmpty());
  EXPECT_THAT(XenOptionCommands(Distribution::kDebian, ""), IsEmpty());
}

}  // namespace
}  // namespace xenprof::xen
