// xenprofd's configuration: defaults, the TOML file, and the command line over it.
#ifndef DAEMON_CONFIG_H_
#define DAEMON_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace xenprof::daemon {

// Every field has one key in the file; systemd/xenprofd.toml says what each means and ships these defaults.
struct Config {
  // [collect]
  std::string event = "auto";
  uint32_t frequency_hz = 97;
  uint32_t max_stack = 127;
  uint32_t ring_kib = 0;
  int32_t reader_nice = -10;
  // [store]
  std::string state_dir = "/var/lib/xenprofd";
  uint32_t block_seconds = 5;
  uint32_t rotate_seconds = 300;
  uint32_t rotate_mib = 16;
  uint32_t max_mib = 1024;
  uint32_t max_age_hours = 168;
  uint32_t min_free_mib = 256;
  // [control]
  std::string socket = "/run/xenprofd/control.sock";
  std::string group;
  uint32_t max_clients = 32;
  // [xen]
  std::string vpmu = "all";
  // [budget]
  uint32_t cpu_permille = 30;
  uint32_t memory_mib = 0;
  // [log]
  std::string log_level = "info";
};

// One key of the file.
struct ConfigKey {
  std::string table, name;
  std::string default_value;  // as TOML writes it
};
std::vector<ConfigKey> ConfigKeys();

// Lays what `text` (TOML) says over `config`. `source` is named in errors: "FILE:LINE: ...". InvalidArgument:
// no TOML, an unknown table or key, a wrong type, a value out of its range.
absl::Status ApplyConfigText(absl::string_view text, const std::string& source, Config* config);
// The same from a file; NotFound and others carry the system's reason.
absl::Status ApplyConfigFile(const std::string& path, Config* config);

// systemd's $STATE_DIRECTORY and $RUNTIME_DIRECTORY, the first of each, over the defaults.
void ApplyEnvironment(Config* config);

// What no single key shows. InvalidArgument.
absl::Status CheckConfig(const Config& config);

}  // namespace xenprof::daemon

#endif  // DAEMON_CONFIG_H_
