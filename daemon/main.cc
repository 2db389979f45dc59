// xenprofd's command line.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "daemon/recorder.h"
#include "daemon/xen_session.h"

namespace {

enum ExitStatus { kExitOk = 0, kExitFailed = 1, kExitUsage = 2 };

int Fail(ExitStatus status, const absl::Status& error) {
  const std::string text(error.message());
  fprintf(stderr, "xenprofd: %s\n", text.c_str());
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace xenprof::daemon;
  CLI::App app{
      "Profiles this host all the time: Xen, dom0 and guests. Runs in the foreground; logs to stderr."};
  app.set_version_flag("--version", ProducerName());
  std::string config_file, state_dir, socket, event, log_level;
  uint32_t frequency_hz = 0;
  bool foreground = false, restore_vpmu = false, vpmu_boot = false;
  app.add_option("--config", config_file, "Configuration (TOML); without it the defaults hold")
      ->type_name("FILE");
  app.add_option("--state-dir", state_dir, "Where chunks are kept, over store.state_dir")->type_name("DIR");
  app.add_option("--socket", socket, "Control socket, over control.socket")->type_name("PATH");
  app.add_option("--frequency", frequency_hz, "Samples a second on each CPU, over collect.frequency_hz")
      ->type_name("HZ")
      ->check(CLI::Range(1, 100000));
  app.add_option("--event", event, "auto, cycles or cpu-clock, over collect.event")
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "cycles", "cpu-clock"}));
  app.add_option("--log-level", log_level, "debug, info, warning or error, over log.level")
      ->type_name("LEVEL")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  app.add_flag("--foreground", foreground,
               "Accepted for the sake of habit: it always runs in the foreground");
  app.add_flag("--restore-vpmu", restore_vpmu,
               "Put Xen's vPMU back as it was before a daemon that died, and end");
  app.add_flag("--vpmu-boot", vpmu_boot, "Set Xen's vPMU for this boot, before guests start, and end")
      ->excludes("--restore-vpmu");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }

  Config config;
  ApplyEnvironment(&config);
  if (!config_file.empty()) {
    absl::Status applied = ApplyConfigFile(config_file, &config);
    if (!applied.ok()) return Fail(kExitUsage, applied);
  }
  // The command line has the last word.
  if (!state_dir.empty()) config.state_dir = state_dir;
  if (!socket.empty()) config.socket = socket;
  if (!event.empty()) config.event = event;
  if (!log_level.empty()) config.log_level = log_level;
  if (frequency_hz != 0) config.frequency_hz = frequency_hz;
  absl::Status checked = CheckConfig(config);
  if (checked.ok()) checked = SetUpLog(config.log_level);
  if (!checked.ok()) return Fail(kExitUsage, checked);

  if (restore_vpmu) {
    const absl::StatusOr<std::string> restored = RestoreVpmu(config);
    if (!restored.ok()) return Fail(kExitFailed, restored.status());
    LogInfo(*restored);
    return kExitOk;
  }
  if (vpmu_boot) {
    LogInfo(SetVpmuAtBoot(config));
    return kExitOk;
  }
  const absl::Status ended = RunDaemon(config);
  if (!ended.ok()) {
    LogError(ended.message());
    return kExitFailed;
  }
  return kExitOk;
}
