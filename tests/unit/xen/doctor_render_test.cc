#include "client/doctor_render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"

namespace xenprof::client {
namespace {

using testing::HasSubstr;
using testing::Not;
using xen::Finding;
using xen::Severity;

Finding Fault() {
  Finding finding;
  finding.id = "pinning";
  finding.severity = Severity::kError;
  finding.title = "Pinning";
  finding.found =
      "Dom0 has 2 vCPUs for 2 CPUs and none of them is where it should be, which takes a long line to say.";
  finding.why = "Samples are counted for the wrong CPU.";
  finding.advice = "Until the next boot.";
  finding.commands = {"xl vcpu-pin 0 0 0", std::string(150, 'x')};
  return finding;
}

TEST(DoctorText, FoldsTextButNotCommands) {
  const std::string text = RenderDoctorText({Fault()}, 60);
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line.find("xxx") == absl::string_view::npos) {
      EXPECT_LE(line.size(), 60u) << line;
    } else {
      EXPECT_EQ(line, "            " + std::string(150, 'x'));
    }
  }
  EXPECT_THAT(text, testing::StartsWith("ERROR  Pinning: Dom0 has"));
  EXPECT_THAT(text, HasSubstr("    why:    Samples"));
  EXPECT_THAT(text, HasSubstr("    note:   Until"));
  EXPECT_THAT(text, HasSubstr("    fix:    xl vcpu-pin 0 0 0\n"));
  EXPECT_THAT(text, testing::EndsWith("1 error.\n"));
}

TEST(DoctorText, AdviceIsTheFixWhereThereIsNoCommand) {
  Finding finding = Fault();
  finding.commands.clear();
  EXPECT_THAT(RenderDoctorText({finding}), HasSubstr("    fix:    Until the next boot."));
}

TEST(DoctorText, FineFindingsHaveOneLine) {
  Finding finding = Fault();
  finding.severity = Severity::kOk;
  EXPECT_THAT(RenderDoctorText({finding}, 200), Not(HasSubstr("fix:")));
  EXPECT_THAT(RenderDoctorText({finding}, 200), testing::EndsWith("No fault found.\n"));
}

TEST(DoctorText, ControlCharactersDoNotReachTheTerminal) {
  Finding finding = Fault();
  finding.found = "guest \x1b[31mred\x07 runs";
  EXPECT_THAT(RenderDoctorText({finding}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(RenderDoctorText({finding}), Not(HasSubstr("\x07")));
}

TEST(DoctorJson, AllFields) {
  const std::string json = RenderDoctorJson({Fault()});
  EXPECT_THAT(json, HasSubstr("\"worst\": \"error\""));
  EXPECT_THAT(json, HasSubstr("\"id\": \"pinning\""));
  EXPECT_THAT(json, HasSubstr("\"xl vcpu-pin 0 0 0\""));
  EXPECT_THAT(RenderDoctorJson({}), HasSubstr("\"worst\": \"skipped\""));
}

}  // namespace
}  // namespace xenprof::client
