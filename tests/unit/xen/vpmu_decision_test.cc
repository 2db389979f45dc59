#include "xenprof/xen/vpmu_decision.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <tuple>

namespace xenprof::xen {
namespace {

constexpr PmuStep kSteps[] = {PmuStep::kRead, PmuStep::kSetFeatures, PmuStep::kSetMode, PmuStep::kRestoreMode,
                              PmuStep::kRestoreFeatures};
constexpr PmuCause kCauses[] = {PmuCause::kAny,      PmuCause::kNotEnabled,
                                PmuCause::kWatchdog, PmuCause::kUnsupportedCpu,
                                PmuCause::kPvhDom0,  PmuCause::kGuestsOnly};

TEST(PmuDecisionTable, EveryAnswerHasARowOfItsStep) {
  for (PmuStep step : kSteps) {
    for (PmuCause cause : kCauses) {
      for (int error = 0; error < 140; ++error) {
        const PmuDecision& row = DecidePmu(step, error, cause);
        EXPECT_EQ(row.step, step);
        EXPECT_TRUE(row.error == error || row.error == kAnyError);
        EXPECT_TRUE(row.cause == cause || row.cause == PmuCause::kAny);
        EXPECT_EQ(row.action == PmuAction::kProceed, error == 0);
      }
    }
  }
}

TEST(PmuDecisionTable, NoRowIsOutOfReach) {
  std::set<const PmuDecision*> reached;
  for (PmuStep step : kSteps) {
    for (PmuCause cause : kCauses) {
      for (int error = 0; error < 140; ++error) reached.insert(&DecidePmu(step, error, cause));
    }
  }
  EXPECT_EQ(reached.size(), PmuDecisionTable().size());
}

TEST(PmuDecisionTable, RefusalsAreSentences) {
  for (const PmuDecision& row : PmuDecisionTable()) {
    if (row.error == 0) continue;
    ASSERT_GT(std::strlen(row.found), 10u);
    EXPECT_EQ(row.found[std::strlen(row.found) - 1], '.') << row.found;
    if (row.remedy[0] != '\0') {
      EXPECT_EQ(row.remedy[std::strlen(row.remedy) - 1], '.') << row.remedy;
    }
    // On some hosts the soft-lockup detector then reboots them.
    EXPECT_EQ(std::string(row.remedy).find("nmi_watchdog"), std::string::npos);
  }
}

TEST(PmuDecisionTable, Rows) {
  EXPECT_EQ(DecidePmu(PmuStep::kSetFeatures, EINVAL, PmuCause::kAny).action, PmuAction::kWithoutStacks);
  EXPECT_EQ(DecidePmu(PmuStep::kSetFeatures, EBUSY, PmuCause::kAny).action, PmuAction::kWithoutStacks);
  EXPECT_EQ(DecidePmu(PmuStep::kSetMode, EBUSY, PmuCause::kAny).action, PmuAction::kNextMode);
  EXPECT_EQ(DecidePmu(PmuStep::kSetMode, EPERM, PmuCause::kAny).action, PmuAction::kNoPmu);
  EXPECT_EQ(DecidePmu(PmuStep::kRestoreMode, EBUSY, PmuCause::kAny).action, PmuAction::kKeepSaved);
  EXPECT_STREQ(DecidePmu(PmuStep::kRead, EOPNOTSUPP, PmuCause::kWatchdog).xen_options, "watchdog=0");
  EXPECT_STREQ(DecidePmu(PmuStep::kRead, EOPNOTSUPP, PmuCause::kNotEnabled).xen_options,
               "vpmu=on watchdog=0");
}

PmuHostFacts Host(const std::string& command_line, const std::string& log = "") {
  PmuHostFacts host;
  host.command_line_known = true;
  host.command_line = command_line;
  host.console_log = log;
  return host;
}

TEST(FindPmuCause, TellsTheFourApart) {
  EXPECT_EQ(FindPmuCause(Host("console=vga")), PmuCause::kNotEnabled);
  EXPECT_EQ(FindPmuCause(Host("vpmu=off")), PmuCause::kNotEnabled);
  EXPECT_EQ(FindPmuCause(Host("vpmu=on watchdog")), PmuCause::kWatchdog);
  EXPECT_EQ(FindPmuCause(Host("vpmu=on", "(XEN) NMI watchdog is enabled. Turning VPMU off.\n")),
            PmuCause::kWatchdog);
  EXPECT_EQ(FindPmuCause(Host("vpmu=on", "(XEN) VPMU: Unsupported CPU family 0x1f\n")),
            PmuCause::kUnsupportedCpu);
  EXPECT_EQ(FindPmuCause(Host("vpmu=on", "(XEN) VPMU: PMU version 1 is not supported\n")),
            PmuCause::kUnsupportedCpu);
  EXPECT_EQ(FindPmuCause(Host("vpmu=on")), PmuCause::kUnsupportedCpu);
  EXPECT_EQ(FindPmuCause(Host("vpmu=hvm")), PmuCause::kGuestsOnly);
  EXPECT_EQ(FindPmuCause(PmuHostFacts()), PmuCause::kAny);
  PmuHostFacts pvh = Host("vpmu=on");
  pvh.pvh_dom0 = true;
  EXPECT_EQ(FindPmuCause(pvh), PmuCause::kPvhDom0);
}

TEST(FindPmuCause, RemarkOnNewerPmuIsNoFault) {
  EXPECT_EQ(FindPmuCause(
                Host("vpmu=off", "(XEN) VPMU: PMU version 5 is not fully supported. Emulating version 3\n")),
            PmuCause::kNotEnabled);
}

TEST(ExplainPmuDecision, NamesGuestsAndErrno) {
  PmuHostFacts host;
  host.guests = {"web (domid 3)"};
  EXPECT_NE(ExplainPmuDecision(DecidePmu(PmuStep::kSetMode, EBUSY, PmuCause::kAny), EBUSY, host)
                .find("web (domid 3)"),
            std::string::npos);
  EXPECT_NE(ExplainPmuDecision(DecidePmu(PmuStep::kSetMode, EIO, PmuCause::kAny), EIO, host)
                .find("Input/output error"),
            std::string::npos);
}

}  // namespace
}  // namespace xenprof::xen
