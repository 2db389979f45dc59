#include "daemon/config.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xenprof::daemon {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(absl::string_view text) {
  Config config;
  const absl::Status status = ApplyConfigText(text, "x.toml", &config);
  EXPECT_FALSE(status.ok()) << text;
  return std::string(status.message());
}

TEST(Config, AnEmptyFileIsTheDefaults) {
  Config config;
  ASSERT_TRUE(ApplyConfigText("", "x.toml", &config).ok());
  EXPECT_EQ(config.frequency_hz, 97u);
  EXPECT_TRUE(CheckConfig(config).ok());
}

TEST(Config, KeysAreTaken) {
  Config config;
  const absl::Status status = ApplyConfigText(R"(
[collect]
event = "cpu-clock"
frequency_hz = 997
reader_nice = -3
[store]
state_dir = "/srv/x"
rotate_mib = 4
[control]
group = "wheel"
[xen]
vpmu = "hv"
[log]
level = "debug"
)",
                                              "x.toml", &config);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(config.event, "cpu-clock");
  EXPECT_EQ(config.frequency_hz, 997u);
  EXPECT_EQ(config.reader_nice, -3);
  EXPECT_EQ(config.state_dir, "/srv/x");
  EXPECT_EQ(config.rotate_mib, 4u);
  EXPECT_EQ(config.group, "wheel");
  EXPECT_EQ(config.vpmu, "hv");
  EXPECT_EQ(config.log_level, "debug");
}

TEST(Config, ErrorsNameFileLineAndKey) {
  EXPECT_EQ(ErrorOf("[collect]\nfrequency_hz = 97\nfrequenzy = 1\n"),
            "x.toml:3: unknown key: collect.frequenzy");
  EXPECT_EQ(ErrorOf("\n[colect]\nevent = \"auto\"\n"), "x.toml:2: unknown key: colect");
  EXPECT_EQ(ErrorOf("frequency_hz = 97\n"), "x.toml:1: unknown key: frequency_hz");
  EXPECT_EQ(ErrorOf("collect = 3\n"), "x.toml:1: not a table: collect");
  EXPECT_EQ(ErrorOf("[collect]\n\nfrequency_hz = 0\n"),
            "x.toml:3: collect.frequency_hz = 0 is outside of 1 to 100000");
  EXPECT_EQ(ErrorOf("[collect]\nfrequency_hz = \"97\"\n"),
            "x.toml:2: collect.frequency_hz takes a whole number");
  EXPECT_EQ(ErrorOf("[collect]\nfrequency_hz = 97.5\n"),
            "x.toml:2: collect.frequency_hz takes a whole number");
  EXPECT_EQ(ErrorOf("[collect]\nevent = \"r00c0\"\n"),
            "x.toml:2: collect.event = \"r00c0\": one of auto, cycles, cpu-clock is meant");
  EXPECT_EQ(ErrorOf("[collect]\nevent = 1\n"), "x.toml:2: collect.event takes a string");
  EXPECT_THAT(ErrorOf("[store]\nstate_dir = \"chunks\"\n"),
              HasSubstr("x.toml:2: store.state_dir = \"chunks\": an absolute"));
  EXPECT_THAT(ErrorOf(absl::StrCat("[control]\nsocket = \"/", std::string(200, 'x'), "\"\n")),
              HasSubstr("x.toml:2: control.socket: a path of 201 bytes"));
  EXPECT_THAT(ErrorOf("[collect]\nfrequency_hz 97\n"), HasSubstr("x.toml:2: "));
  EXPECT_THAT(ErrorOf("[collect]\nfrequency_hz = 1\nfrequency_hz = 2\n"), HasSubstr("x.toml:3: "));
  EXPECT_THAT(ErrorOf("[control]\ngroup = \"a:b\"\n"), HasSubstr("is no name of a group"));
}

TEST(Config, AnErrorChangesNothing) {
  Config config;
  EXPECT_FALSE(ApplyConfigText("[collect]\nfrequency_hz = 500\nnonsense = 1\n", "x.toml", &config).ok());
  EXPECT_EQ(config.frequency_hz, 97u);
}

TEST(Config, HostileTextIsRefused) {
  for (const std::string& text :
       {std::string(100000, '['), std::string("\0\0\0", 3), std::string("[collect]\nevent = \"\xff\xfe\""),
        std::string("[collect\n"), std::string("a.b.c.d = {}")}) {
    Config config;
    EXPECT_FALSE(ApplyConfigText(text, "x.toml", &config).ok());
  }
}

TEST(Config, WhatNoSingleKeyShows) {
  Config config;
  config.rotate_seconds = 5;
  config.block_seconds = 10;
  EXPECT_THAT(std::string(CheckConfig(config).message()), HasSubstr("store.rotate_seconds (5)"));
  config = Config();
  config.max_mib = 16;
  EXPECT_THAT(std::string(CheckConfig(config).message()), HasSubstr("store.max_mib (16)"));
  config = Config();
  config.ring_kib = 100;
  EXPECT_THAT(std::string(CheckConfig(config).message()), HasSubstr("collect.ring_kib = 100"));
}

TEST(Config, MissingFileSaysSo) {
  Config config;
  const absl::Status status = ApplyConfigFile("/nonexistent/xenprofd.toml", &config);
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/xenprofd.toml: No such file"));
}

TEST(Config, SystemdsFoldersComeBeforeTheDefaults) {
  setenv("STATE_DIRECTORY", "/var/lib/one:/var/lib/two", 1);
  setenv("RUNTIME_DIRECTORY", "/run/one", 1);
  Config config;
  ApplyEnvironment(&config);
  unsetenv("STATE_DIRECTORY");
  unsetenv("RUNTIME_DIRECTORY");
  EXPECT_EQ(config.state_dir, "/var/lib/one");
  EXPECT_EQ(config.socket, "/run/one/control.sock");
}

// The shipped file has every key, each with its default and a comment above.
TEST(Config, TheShippedFileIsTheDefaults) {
  std::ifstream file(XENPROF_DEFAULT_CONFIG);
  ASSERT_TRUE(file) << XENPROF_DEFAULT_CONFIG;
  std::stringstream text;
  text << file.rdbuf();
  Config config;
  const absl::Status status = ApplyConfigText(text.str(), "xenprofd.toml", &config);
  ASSERT_TRUE(status.ok()) << status;

  std::string table, previous, line;
  std::vector<std::string> found;
  std::stringstream lines(text.str());
  while (std::getline(lines, line)) {
    if (absl::StartsWith(line, "[")) table = line.substr(1, line.find(']') - 1);
    if (!line.empty() && line[0] != '#' && line[0] != '[') {
      found.push_back(absl::StrCat(table, ".", line));
      const bool explained = absl::StartsWith(previous, "#") || !absl::StartsWith(previous, "[");
      EXPECT_TRUE(explained && !previous.empty()) << line;
    }
    previous = line;
  }
  std::vector<std::string> wanted;
  for (const ConfigKey& key : ConfigKeys()) {
    wanted.push_back(absl::StrCat(key.table, ".", key.name, " = ", key.default_value));
  }
  EXPECT_EQ(found, wanted);
}

}  // namespace
}  // namespace xenprof::daemon
