#include "xenprof/xen/mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace xenprof::xen {
namespace {

using testing::HasSubstr;

ModeInputs Lab() {
  ModeInputs inputs;
  inputs.host.on_xen = true;
  inputs.host.dom0 = true;
  inputs.vpmu.usable = true;
  inputs.vpmu.name = "all";
  inputs.vpmu.mode = PmuMode::kAll;
  inputs.vpmu.hv_stacks = true;
  inputs.kernel_has_callchain = true;
  inputs.pmu_event_usable = true;
  return inputs;
}

TEST(DecideMode, Lab) {
  const ModeDecision mode = DecideMode(Lab());
  EXPECT_EQ(mode.kind, ModeKind::kXenStacks);
  EXPECT_EQ(mode.vpmu, "all");
}

TEST(DecideMode, NoXen) {
  EXPECT_EQ(DecideMode(ModeInputs()).kind, ModeKind::kPlainLinux);
  ModeInputs guest = Lab();
  guest.host.dom0 = false;
  EXPECT_EQ(DecideMode(guest).kind, ModeKind::kPlainLinux);
  EXPECT_THAT(DecideMode(guest).reason, HasSubstr("guest"));
}

TEST(DecideMode, NoVpmu) {
  ModeInputs inputs = Lab();
  inputs.vpmu = VpmuOutcome();
  inputs.vpmu.no_pmu_reason = "The watchdog has it.";
  const ModeDecision mode = DecideMode(inputs);
  EXPECT_EQ(mode.kind, ModeKind::kDom0Only);
  EXPECT_EQ(mode.reason, "The watchdog has it.");
  EXPECT_EQ(mode.vpmu, "");
}

TEST(DecideMode, VpmuButNoEvent) {
  ModeInputs inputs = Lab();
  inputs.pmu_event_usable = false;
  inputs.pmu_event_problem = "no PMU was found";
  const ModeDecision mode = DecideMode(inputs);
  EXPECT_EQ(mode.kind, ModeKind::kDom0Only);
  EXPECT_THAT(mode.reason, HasSubstr("no PMU was found"));
}

TEST(DecideMode, LeafOnly) {
  ModeInputs inputs = Lab();
  inputs.vpmu.hv_stacks = false;
  inputs.vpmu.no_stacks_reason = "This Xen has none.";
  EXPECT_EQ(DecideMode(inputs).kind, ModeKind::kXenLeafOnly);
  EXPECT_EQ(DecideMode(inputs).reason, "This Xen has none.");
  inputs = Lab();
  inputs.kernel_has_callchain = false;
  EXPECT_EQ(DecideMode(inputs).kind, ModeKind::kXenLeafOnly);
  EXPECT_THAT(DecideMode(inputs).reason, HasSubstr("xen_hypervisor_callchain"));
}

TEST(DecideMode, SelfSeesDom0Only) {
  ModeInputs inputs = Lab();
  inputs.vpmu.name = "self";
  EXPECT_EQ(DecideMode(inputs).kind, ModeKind::kDom0Only);
}

TEST(DecideMode, HvSaysHowFarItSees) {
  ModeInputs inputs = Lab();
  inputs.vpmu.name = "hv";
  EXPECT_EQ(DecideMode(inputs).kind, ModeKind::kXenStacks);
  EXPECT_THAT(DecideMode(inputs).reason, HasSubstr("guests not at all"));
}

TEST(DecideMode, Global) {
  ModeInputs inputs = Lab();
  inputs.vpmu.name = "global";
  inputs.vpmu.hv_stacks = false;
  inputs.vpmu.hv_stacks_unknown = true;
  EXPECT_EQ(DecideMode(inputs).kind, ModeKind::kXenStacks);
  inputs.kernel_has_callchain = false;
  EXPECT_EQ(DecideMode(inputs).kind, ModeKind::kXenLeafOnly);
  EXPECT_EQ(DecideMode(inputs).vpmu, "global");
}

// -- against samples
// ---------------------------------------------------------------------------------------------------

constexpr uint64_t kSecond = 1'000'000'000;

TEST(ModeConfirmer, OneSampleWithCallersConfirms) {
  ModeConfirmer confirmer(DecideMode(Lab()));
  confirmer.CpuOnline(0, 0);
  confirmer.Add(0, {.samples = 100, .xen_samples = 49, .max_xen_frames = 1}, kSecond);
  EXPECT_FALSE(confirmer.Evaluate().has_value());
  EXPECT_FALSE(confirmer.confirmed());
  confirmer.Add(0, {.samples = 1, .xen_samples = 1, .max_xen_frames = 7}, kSecond);
  EXPECT_FALSE(confirmer.Evaluate().has_value());
  EXPECT_TRUE(confirmer.confirmed());
}

TEST(ModeConfirmer, OnlyLeavesMeanLeafOnly) {
  ModeConfirmer confirmer(DecideMode(Lab()));
  confirmer.Add(0, {.samples = 1000, .xen_samples = 50, .max_xen_frames = 1}, kSecond);
  const auto changed = confirmer.Evaluate();
  ASSERT_TRUE(changed.has_value());
  EXPECT_EQ(changed->kind, ModeKind::kXenLeafOnly);
  EXPECT_EQ(changed->vpmu, "all");
  EXPECT_THAT(changed->reason, HasSubstr("none of 50 samples"));
  EXPECT_FALSE(confirmer.Evaluate().has_value());  // once
}

TEST(ModeConfirmer, NoXenSampleProvesNothing) {
  ModeConfirmer confirmer(DecideMode(Lab()));
  confirmer.Add(0, {.samples = 100000}, kSecond);
  EXPECT_FALSE(confirmer.Evaluate().has_value());
  EXPECT_EQ(confirmer.current().kind, ModeKind::kXenStacks);
}

TEST(ModeConfirmer, LateStacksTurnLeafOnlyBack) {
  ModeConfirmer confirmer(DecideMode(Lab()));
  confirmer.Add(0, {.samples = 60, .xen_samples = 60, .max_xen_frames = 1}, kSecond);
  ASSERT_TRUE(confirmer.Evaluate().has_value());
  confirmer.Add(0, {.samples = 1, .xen_samples = 1, .max_xen_frames = 2}, kSecond);
  const auto changed = confirmer.Evaluate();
  ASSERT_TRUE(changed.has_value());
  EXPECT_EQ(changed->kind, ModeKind::kXenStacks);
}

TEST(ModeConfirmer, SamplesInXenOutweighDom0Only) {
  ModeDecision dom0_only{ModeKind::kDom0Only, "expected", ""};
  ModeConfirmer confirmer(dom0_only);
  confirmer.Add(0, {.samples = 10}, kSecond);
  EXPECT_FALSE(confirmer.Evaluate().has_value());
  EXPECT_TRUE(confirmer.confirmed());
  confirmer.Add(0, {.samples = 1, .xen_samples = 1, .max_xen_frames = 1}, kSecond);
  EXPECT_EQ(confirmer.Evaluate()->kind, ModeKind::kXenLeafOnly);
}

TEST(ModeConfirmer, SilentCpus) {
  ModeConfirmer confirmer(DecideMode(Lab()));
  for (uint32_t cpu : {0, 1, 2, 3}) confirmer.CpuOnline(cpu, 5 * kSecond);
  EXPECT_TRUE(confirmer.SilentCpus(14 * kSecond).empty());
  confirmer.Add(0, {.samples = 1}, 14 * kSecond);
  confirmer.Add(1, {.samples = 1}, 6 * kSecond);
  confirmer.Add(2, {.samples = 0}, 14 * kSecond);
  confirmer.CpuOffline(3);
  confirmer.Add(9, {.samples = 1}, 14 * kSecond);  // not watched
  const auto silent = confirmer.SilentCpus(20 * kSecond);
  ASSERT_EQ(silent.size(), 2u);
  EXPECT_EQ(silent[0].cpu, 1u);
  EXPECT_EQ(silent[0].since_ns, 6 * kSecond);
  EXPECT_FALSE(silent[0].never);
  EXPECT_EQ(silent[1].cpu, 2u);
  EXPECT_EQ(silent[1].since_ns, 5 * kSecond);
  EXPECT_TRUE(silent[1].never);
  EXPECT_TRUE(confirmer.SilentCpus(0).empty());  // a clock that ran back
}

}  // namespace
}  // namespace xenprof::xen
