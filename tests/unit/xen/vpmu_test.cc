#include "xenprof/xen/vpmu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "fake_pmu_files.h"
#include "temp_tree.h"

namespace xenprof::xen {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kOtherBoot[] = "11111111-89ab-cdef-0123-456789abcdef";

class VpmuTest : public testing::Test {
 protected:
  VpmuTest() {
    options_.proc_root = tree_.root() + "/proc";
    options_.state_dir = tree_.Folder("/state");
    SetBoot(kBoot);
  }
  void SetBoot(const std::string& boot) { tree_.Write("/proc/sys/kernel/random/boot_id", boot + "\n"); }
  std::string Saved() { return tree_.Read("/state/vpmu-saved"); }
  bool HasSaved() { return tree_.Exists("/state/vpmu-saved"); }
  static std::string Notes(const std::vector<VpmuNote>& notes) {
    std::string text;
    for (const VpmuNote& note : notes) text += note.text + "\n";
    return text;
  }
  static VpmuRequest Request(PmuMode max, const std::string& command_line = "vpmu=on") {
    VpmuRequest request;
    request.max_mode = max;
    request.host.command_line_known = true;
    request.host.command_line = command_line;
    return request;
  }
  // A daemon that dies without restoring.
  void EnableAndCrash(PmuMode max = PmuMode::kAll) {
    VpmuControl control(options_, &files_);
    control.Enable(Request(max));
  }

  TempTree tree_;
  VpmuOptions options_;
  FakePmuFiles files_;
};

TEST_F(VpmuTest, FeaturesThenModeWithOldValuesSavedFirst) {
  bool saved_before_first_write = false;
  files_.before_write = [&] {
    if (files_.writes.empty()) {
      saved_before_first_write = Saved() == FormatSavedVpmu({kBoot, PmuMode::kSelf, 0x0});
    }
  };
  VpmuControl control(options_, &files_);
  const VpmuOutcome outcome = control.Enable(Request(PmuMode::kAll));
  EXPECT_TRUE(saved_before_first_write);
  EXPECT_THAT(files_.writes, ElementsAre("features=0x8\n", "mode=all\n"));
  EXPECT_TRUE(outcome.usable);
  EXPECT_TRUE(outcome.hv_stacks);
  EXPECT_EQ(outcome.name, "all");
  EXPECT_EQ(outcome.no_pmu_reason, "");
  EXPECT_EQ(outcome.no_stacks_reason, "");

  files_.writes.clear();
  const auto notes = control.Restore();
  ASSERT_TRUE(notes.ok()) << notes.status();
  EXPECT_THAT(files_.writes, ElementsAre("mode=self\n", "features=0x0\n"));
  EXPECT_FALSE(HasSaved());
  EXPECT_EQ(files_.mode, PmuMode::kSelf);
}

TEST_F(VpmuTest, NeverTouchesOtherFeatureBits) {
  for (uint64_t old : {0x0, 0x1, 0x2, 0x4, 0x6, 0x7}) {
    FakePmuFiles files;
    files.features = old;
    VpmuControl control(options_, &files);
    EXPECT_EQ(control.Enable(Request(PmuMode::kAll)).features, old | 8);
    ASSERT_TRUE(control.Restore().ok());
    EXPECT_EQ(files.features, old);
  }
}

TEST_F(VpmuTest, ForeignValuesComeBack) {
  files_.mode = PmuMode::kHv;
  files_.features = 0x4;
  EnableAndCrash();
  EXPECT_EQ(files_.mode, PmuMode::kAll);
  EXPECT_EQ(files_.features, 0xcu);
  const auto text = RestoreSaved(options_, &files_);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("mode hv, features 0x4"));
  EXPECT_EQ(files_.mode, PmuMode::kHv);
  EXPECT_EQ(files_.features, 0x4u);
  EXPECT_FALSE(HasSaved());
  files_.writes.clear();
  EXPECT_THAT(RestoreSaved(options_, &files_).value(), HasSubstr("nothing to put back"));
  EXPECT_THAT(files_.writes, IsEmpty());
}

TEST_F(VpmuTest, NextStartKeepsTheValuesOfTheRunThatDied) {
  EnableAndCrash();
  VpmuControl control(options_, &files_);
  const VpmuOutcome outcome = control.Enable(Request(PmuMode::kAll));
  EXPECT_TRUE(outcome.hv_stacks);
  EXPECT_THAT(Notes(outcome.notes), HasSubstr("previous run did not end in order"));
  EXPECT_EQ(Saved(), FormatSavedVpmu({kBoot, PmuMode::kSelf, 0x0}));
  ASSERT_TRUE(control.Restore().ok());
  EXPECT_EQ(files_.mode, PmuMode::kSelf);
  EXPECT_EQ(files_.features, 0u);
}

TEST_F(VpmuTest, CrashBetweenTheTwoWrites) {
  files_.mode_write_error = EIO;  // as if killed before the mode
  EnableAndCrash();
  EXPECT_EQ(files_.features, 8u);
  EXPECT_TRUE(HasSaved());
  files_.mode_write_error = 0;
  ASSERT_TRUE(RestoreSaved(options_, &files_).ok());
  EXPECT_EQ(files_.features, 0u);
  EXPECT_EQ(files_.mode, PmuMode::kSelf);
}

TEST_F(VpmuTest, SigkillLeavesTheSavedFileAndNoLock) {
  const pid_t child = fork();
  if (child == 0) {
    VpmuControl control(options_, &files_);
    control.Enable(Request(PmuMode::kAll));
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  files_.mode = PmuMode::kAll;  // the child's fake was its own copy
  files_.features = 8;
  ASSERT_TRUE(RestoreSaved(options_, &files_).ok());
  EXPECT_EQ(files_.mode, PmuMode::kSelf);
}

TEST_F(VpmuTest, ValuesOfAnEarlierBootAreDropped) {
  EnableAndCrash();
  SetBoot(kOtherBoot);
  files_.mode = PmuMode::kHv;
  files_.features = 0;
  files_.writes.clear();
  EXPECT_THAT(RestoreSaved(options_, &files_).value(), HasSubstr("reboot"));
  EXPECT_THAT(files_.writes, IsEmpty());
  EXPECT_FALSE(HasSaved());
}

TEST_F(VpmuTest, StartAfterARebootSavesTheNewValues) {
  EnableAndCrash();
  SetBoot(kOtherBoot);
  files_.mode = PmuMode::kOff;
  files_.features = 0;
  VpmuControl control(options_, &files_);
  control.Enable(Request(PmuMode::kAll));
  EXPECT_EQ(Saved(), FormatSavedVpmu({kOtherBoot, PmuMode::kOff, 0}));
}

TEST_F(VpmuTest, CorruptSavedFileIsNotActedOn) {
  tree_.Write("/state/vpmu-saved", "mode all\n");
  VpmuControl control(options_, &files_);
  const VpmuOutcome outcome = control.Enable(Request(PmuMode::kAll));
  EXPECT_TRUE(outcome.hv_stacks);
  EXPECT_THAT(Notes(outcome.notes), HasSubstr("not what xenprofd writes"));
  EXPECT_TRUE(tree_.Exists("/state/vpmu-saved.refused"));
  EXPECT_EQ(Saved(), FormatSavedVpmu({kBoot, PmuMode::kSelf, 0}));
}

TEST_F(VpmuTest, CorruptSavedFileIsNotRestored) {
  tree_.Write("/state/vpmu-saved", "mode off\n");
  EXPECT_THAT(RestoreSaved(options_, &files_).value(), HasSubstr("nothing is restored from it"));
  EXPECT_THAT(files_.writes, IsEmpty());
}

TEST_F(VpmuTest, NothingIsWrittenWhenSavingFails) {
  options_.state_dir = tree_.root() + "/missing";
  VpmuControl control(options_, &files_);
  const VpmuOutcome outcome = control.Enable(Request(PmuMode::kAll));
  EXPECT_THAT(files_.writes, IsEmpty());
  EXPECT_EQ(outcome.name, "self");  // what is set anyway
  EXPECT_FALSE(outcome.hv_stacks);
  EXPECT_THAT(outcome.no_stacks_reason, HasSubstr("left as it is"));
}

TEST_F(VpmuTest, NothingIsWrittenWithoutABootId) {
  options_.proc_root = tree_.root() + "/missing";
  VpmuControl control(options_, &files_);
  control.Enable(Request(PmuMode::kAll));
  EXPECT_THAT(files_.writes, IsEmpty());
}

TEST_F(VpmuTest, SecondDaemonLeavesTheVpmuAlone) {
  VpmuControl first(options_, &files_);
  first.Enable(Request(PmuMode::kHv));
  files_.writes.clear();
  VpmuControl second(options_, &files_);
  EXPECT_THAT(Notes(second.Enable(Request(PmuMode::kAll)).notes), HasSubstr("another process"));
  EXPECT_TRUE(absl::IsFailedPrecondition(RestoreSaved(options_, &files_).status()));
  EXPECT_THAT(files_.writes, IsEmpty());
}

// -- the rows of the facts' table
// --------------------------------------------------------------------------------------

TEST_F(VpmuTest, XenWithoutStacks) {
  files_.known_features = 0x7;
  VpmuControl control(options_, &files_);
  const VpmuOutcome outcome = control.Enable(Request(PmuMode::kAll));
  EXPECT_EQ(outcome.name, "all");
  EXPECT_FALSE(outcome.hv_stacks);
  EXPECT_THAT(outcome.no_stacks_reason, HasSubstr("no hypervisor stacks"));
  ASSERT_TRUE(control.Restore().ok());
  EXPECT_EQ(files_.mode, PmuMode::kSelf);
}

TEST_F(VpmuTest, NothingToPutBackLeavesNoFile) {
  files_.known_features = 0x7;
  files_.mode = PmuMode::kAll;
  VpmuControl control(options_, &files_);
  control.Enable(Request(PmuMode::kAll));
  EXPECT_FALSE(HasSaved());
}

TEST_F(VpmuTest, GuestFirst) {
  files_.guest_holds_vpmu = true;
  VpmuRequest request = Request(PmuMode::kAll);
  request.host.guests = {"guest1 (domid 1)"};
  VpmuControl control(options_, &files_);
  const VpmuOutcome outcome = control.Enable(request);
  EXPECT_THAT(files_.writes, ElementsAre("features=0x8\n", "mode=all\n", "mode=hv\n"));
  EXPECT_EQ(outcome.name, "hv");
  EXPECT_FALSE(outcome.hv_stacks);
  EXPECT_THAT(outcome.no_stacks_reason, HasSubstr("cannot be turned on while a guest holds a vPMU"));
  EXPECT_THAT(Notes(outcome.notes), HasSubstr("guest1 (domid 1)"));
  EXPECT_THAT(Notes(outcome.notes), HasSubstr("xenprofd-vpmu-boot.service"));
  ASSERT_TRUE(control.Restore().ok());
  EXPECT_EQ(files_.mode, PmuMode::kSelf);
}

TEST_F(VpmuTest, GuestHoldsAVpmuAndModeIsOff) {
  files_.mode = PmuMode::kOff;
  files_.guest_holds_vpmu = true;
  VpmuControl control(options_, &files_);
  const VpmuOutcome outcome = control.Enable(Request(PmuMode::kAll));
  EXPECT_FALSE(outcome.usable);
  EXPECT_THAT(outcome.no_pmu_reason, HasSubstr("guest holds a vPMU"));
  EXPECT_FALSE(HasSaved());
}

TEST_F(VpmuTest, EopnotsuppNamesItsCause) {
  files_.enabled = false;
  const auto reason = [&](const std::string& command_line) {
    VpmuControl control(options_, &files_);
    const VpmuOutcome outcome = control.Enable(Request(PmuMode::kAll, command_line));
    EXPECT_FALSE(outcome.usable);
    EXPECT_EQ(outcome.name, "");
    return outcome.no_pmu_reason;
  };
  EXPECT_THAT(reason("vpmu=off"), HasSubstr("Add vpmu=on"));
  EXPECT_THAT(reason("vpmu=on watchdog"), HasSubstr("NMI watchdog"));
  EXPECT_THAT(reason("vpmu=on"), HasSubstr("processor"));
  EXPECT_THAT(files_.writes, IsEmpty());
}

TEST_F(VpmuTest, EveryErrnoOfEveryFileIsSurvivedAndSaid) {
  for (int error : {EOPNOTSUPP, EINVAL, EBUSY, EPERM, EROFS, EACCES, ENOENT, EIO}) {
    for (int which = 0; which < 3; ++which) {
      FakePmuFiles files;
      files.mode = PmuMode::kOff;
      (which == 0   ? files.read_error
       : which == 1 ? files.mode_write_error
                    : files.features_write_error) = error;
      VpmuControl control(options_, &files);
      const VpmuOutcome outcome = control.Enable(Request(PmuMode::kAll));
      EXPECT_EQ(outcome.usable, which == 2) << error;
      EXPECT_FALSE(outcome.hv_stacks) << error << " " << which;
      EXPECT_FALSE(which == 2 ? outcome.no_stacks_reason.empty() : outcome.no_pmu_reason.empty());
      if (which != 2) {
        EXPECT_EQ(files.features, 0u);  // of no use without a mode
      }
      ASSERT_TRUE(control.Restore().ok());
      EXPECT_EQ(files.mode, PmuMode::kOff);
      EXPECT_FALSE(HasSaved());
    }
  }
}

TEST_F(VpmuTest, VpmuGlobalHasNothingToSwitch) {
  files_.enabled = false;
  VpmuControl control(options_, &files_);
  const VpmuOutcome outcome = control.Enable(Request(PmuMode::kAll, "vpmu=global"));
  EXPECT_TRUE(outcome.usable);
  EXPECT_EQ(outcome.name, "global");
  EXPECT_TRUE(outcome.hv_stacks_unknown);
  EXPECT_THAT(files_.writes, IsEmpty());
  ASSERT_TRUE(control.Restore().ok());
}

// -- configuration
// -----------------------------------------------------------------------------------------------------

TEST_F(VpmuTest, ConfigurationLimitsTheMode) {
  for (PmuMode max : {PmuMode::kHv, PmuMode::kSelf}) {
    FakePmuFiles files;
    files.mode = PmuMode::kOff;
    VpmuControl control(options_, &files);
    EXPECT_EQ(control.Enable(Request(max)).mode, max);
    ASSERT_TRUE(control.Restore().ok());
    EXPECT_EQ(files.mode, PmuMode::kOff);
  }
}

TEST_F(VpmuTest, KeepChangesNothing) {
  VpmuControl control(options_, &files_);
  EXPECT_EQ(control.Enable(Request(PmuMode::kOff)).name, "self");
  EXPECT_THAT(files_.writes, IsEmpty());
}

TEST_F(VpmuTest, GreaterModeOfSomeoneElseStays) {
  files_.mode = PmuMode::kAll;
  VpmuControl control(options_, &files_);
  const VpmuOutcome outcome = control.Enable(Request(PmuMode::kHv));
  EXPECT_EQ(outcome.name, "all");
  EXPECT_TRUE(outcome.hv_stacks);
  ASSERT_TRUE(control.Restore().ok());
  EXPECT_EQ(files_.mode, PmuMode::kAll);
  EXPECT_EQ(files_.features, 0u);
}

// -- the boot unit
// -----------------------------------------------------------------------------------------------------

TEST_F(VpmuTest, WhatTheBootUnitSetStays) {
  const VpmuOutcome boot = EnableAtBoot(options_, Request(PmuMode::kAll), &files_);
  EXPECT_TRUE(boot.hv_stacks);
  EXPECT_FALSE(HasSaved());
  files_.writes.clear();
  VpmuControl control(options_, &files_);
  EXPECT_EQ(control.Enable(Request(PmuMode::kAll)).name, "all");
  ASSERT_TRUE(control.Restore().ok());
  EXPECT_THAT(files_.writes, IsEmpty());
  EXPECT_FALSE(HasSaved());
  EXPECT_EQ(files_.mode, PmuMode::kAll);
}

// -- restoring against resistance
// --------------------------------------------------------------------------------------

TEST_F(VpmuTest, GuestStartedMeanwhileDelaysRestoring) {
  files_.mode = PmuMode::kOff;
  EnableAndCrash(PmuMode::kHv);
  files_.guest_holds_vpmu = true;
  const auto refused = RestoreSaved(options_, &files_);
  EXPECT_TRUE(absl::IsUnavailable(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("stay saved"));
  EXPECT_TRUE(HasSaved());
  files_.guest_holds_vpmu = false;
  ASSERT_TRUE(RestoreSaved(options_, &files_).ok());
  EXPECT_EQ(files_.mode, PmuMode::kOff);
  EXPECT_EQ(files_.features, 0u);
}

// -- real files
// --------------------------------------------------------------------------------------------------------

TEST_F(VpmuTest, SysfsTree) {
  tree_.Write("/sys/hypervisor/pmu/pmu_mode", "self\n");
  tree_.Write("/sys/hypervisor/pmu/pmu_features", "0x4\n");
  options_.sysfs_root = tree_.root() + "/sys";
  {
    VpmuControl control(options_);
    EXPECT_TRUE(control.Enable(Request(PmuMode::kAll)).hv_stacks);
  }
  EXPECT_EQ(tree_.Read("/sys/hypervisor/pmu/pmu_mode"), "all\n");
  EXPECT_EQ(tree_.Read("/sys/hypervisor/pmu/pmu_features"), "0xc\n");
  ASSERT_TRUE(RestoreSaved(options_).ok());
  EXPECT_EQ(tree_.Read("/sys/hypervisor/pmu/pmu_mode"), "self\n");
  EXPECT_EQ(tree_.Read("/sys/hypervisor/pmu/pmu_features"), "0x4\n");
}

TEST_F(VpmuTest, NoSysfsTree) {
  options_.sysfs_root = tree_.root() + "/sys";
  VpmuControl control(options_);
  EXPECT_THAT(control.Enable(Request(PmuMode::kAll)).no_pmu_reason, HasSubstr("CONFIG_XEN_HAVE_VPMU"));
  EXPECT_THAT(RestoreSaved({options_.sysfs_root, options_.proc_root, "/nonexistent"}).value(),
              HasSubstr("nothing"));
}

TEST_F(VpmuTest, UnknownValuesAreLeftAlone) {
  tree_.Write("/sys/hypervisor/pmu/pmu_mode", "selfish\n");
  tree_.Write("/sys/hypervisor/pmu/pmu_features", "0x4\n");
  options_.sysfs_root = tree_.root() + "/sys";
  VpmuControl control(options_);
  EXPECT_FALSE(control.Enable(Request(PmuMode::kAll)).usable);
  EXPECT_EQ(tree_.Read("/sys/hypervisor/pmu/pmu_mode"), "selfish\n");
}

TEST(FakePmuFiles, OneByteSelectsOffAsInTheLab) {
  FakePmuFiles files;
  EXPECT_EQ(files.Write(PmuFile::kMode, "\n"), 0);
  EXPECT_EQ(files.mode, PmuMode::kOff);
}

}  // namespace
}  // namespace xenprof::xen
