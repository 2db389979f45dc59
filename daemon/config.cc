#include "daemon/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace xenprof::daemon {
namespace {

struct NumberKey {
  uint32_t Config::*field;
  int64_t least, most;
};
struct SignedKey {
  int32_t Config::*field;
  int64_t least, most;
};
struct WordKey {
  std::string Config::*field;
  std::vector<absl::string_view> choices;
};
struct PathKey {
  std::string Config::*field;
  size_t max_bytes;
};
struct NameKey {
  std::string Config::*field;
};
struct Key {
  const char* table;
  const char* name;
  std::variant<NumberKey, SignedKey, WordKey, PathKey, NameKey> kind;
};

// A socket's path has to fit into sockaddr_un (108 bytes with its end).
constexpr size_t kMaxSocketPath = 107;

const std::vector<Key>& Keys() {
  static const auto* keys = new std::vector<Key>{
      {"collect", "event", WordKey{&Config::event, {"auto", "cycles", "cpu-clock"}}},
      {"collect", "frequency_hz", NumberKey{&Config::frequency_hz, 1, 100000}},
      {"collect", "max_stack", NumberKey{&Config::max_stack, 1, 127}},
      {"collect", "ring_kib", NumberKey{&Config::ring_kib, 0, 65536}},
      {"collect", "reader_nice", SignedKey{&Config::reader_nice, -20, 19}},
      {"store", "state_dir", PathKey{&Config::state_dir, 4000}},
      {"store", "block_seconds", NumberKey{&Config::block_seconds, 1, 300}},
      {"store", "rotate_seconds", NumberKey{&Config::rotate_seconds, 5, 86400}},
      {"store", "rotate_mib", NumberKey{&Config::rotate_mib, 1, 1024}},
      {"store", "max_mib", NumberKey{&Config::max_mib, 0, 16 << 20}},
      {"store", "max_age_hours", NumberKey{&Config::max_age_hours, 0, 24 * 3660}},
      {"store", "min_free_mib", NumberKey{&Config::min_free_mib, 0, 16 << 20}},
      {"control", "socket", PathKey{&Config::socket, kMaxSocketPath}},
      {"control", "group", NameKey{&Config::group}},
      {"control", "max_clients", NumberKey{&Config::max_clients, 1, 1024}},
      {"xen", "vpmu", WordKey{&Config::vpmu, {"all", "hv", "self", "keep"}}},
      {"budget", "cpu_permille", NumberKey{&Config::cpu_permille, 0, 1000}},
      {"budget", "memory_mib", NumberKey{&Config::memory_mib, 0, 65536}},
      {"log", "level", WordKey{&Config::log_level, {"debug", "info", "warning", "error"}}},
  };
  return *keys;
}

std::string Where(const std::string& source, const toml::source_region& region) {
  return absl::StrCat(source, ":", region.begin.line, ": ");
}

absl::Status SetNumber(const toml::node& node, const std::string& what, int64_t least, int64_t most,
                       int64_t* value) {
  const auto* number = node.as_integer();
  if (number == nullptr) return absl::InvalidArgumentError(absl::StrCat(what, " takes a whole number"));
  if (number->get() < least || number->get() > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " = ", number->get(), " is outside of ", least, " to ", most));
  }
  *value = number->get();
  return absl::OkStatus();
}

absl::Status SetKey(const Key& key, const toml::node& node, const std::string& what, Config* config) {
  int64_t number = 0;
  if (const auto* kind = std::get_if<NumberKey>(&key.kind)) {
    absl::Status set = SetNumber(node, what, kind->least, kind->most, &number);
    if (set.ok()) config->*(kind->field) = static_cast<uint32_t>(number);
    return set;
  }
  if (const auto* kind = std::get_if<SignedKey>(&key.kind)) {
    absl::Status set = SetNumber(node, what, kind->least, kind->most, &number);
    if (set.ok()) config->*(kind->field) = static_cast<int32_t>(number);
    return set;
  }
  const auto* text = node.as_string();
  if (text == nullptr) return absl::InvalidArgumentError(absl::StrCat(what, " takes a string"));
  const std::string& value = text->get();
  if (const auto* kind = std::get_if<WordKey>(&key.kind)) {
    if (std::find(kind->choices.begin(), kind->choices.end(), value) == kind->choices.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " = \"", value, "\": one of ", absl::StrJoin(kind->choices, ", "), " is meant"));
    }
    config->*(kind->field) = value;
  } else if (const auto* kind = std::get_if<PathKey>(&key.kind)) {
    if (!absl::StartsWith(value, "/") || absl::StrContains(value, '\0')) {
      return absl::InvalidArgumentError(absl::StrCat(what, " = \"", value, "\": an absolute path is meant"));
    }
    if (value.size() > kind->max_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": a path of ", value.size(), " bytes; at most ",
                                                     kind->max_bytes, " are possible"));
    }
    config->*(kind->field) = value;
  } else if (const auto* kind = std::get_if<NameKey>(&key.kind)) {
    if (value.size() > 255 || value.find_first_of(std::string(":/\n\0", 4)) != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(what, " = \"", value, "\" is no name of a group"));
    }
    config->*(kind->field) = value;
  }
  return absl::OkStatus();
}

std::string Quoted(const std::string& text) { return absl::StrCat("\"", text, "\""); }

}  // namespace

std::vector<ConfigKey> ConfigKeys() {
  const Config defaults;
  std::vector<ConfigKey> all;
  for (const Key& key : Keys()) {
    std::string value;
    if (const auto* kind = std::get_if<NumberKey>(&key.kind)) value = absl::StrCat(defaults.*(kind->field));
    if (const auto* kind = std::get_if<SignedKey>(&key.kind)) value = absl::StrCat(defaults.*(kind->field));
    if (const auto* kind = std::get_if<WordKey>(&key.kind)) value = Quoted(defaults.*(kind->field));
    if (const auto* kind = std::get_if<PathKey>(&key.kind)) value = Quoted(defaults.*(kind->field));
    if (const auto* kind = std::get_if<NameKey>(&key.kind)) value = Quoted(defaults.*(kind->field));
    all.push_back({key.table, key.name, value});
  }
  return all;
}

absl::Status ApplyConfigText(absl::string_view text, const std::string& source, Config* config) {
  toml::table tables;
  try {
    tables = toml::parse(std::string_view(text.data(), text.size()));
  } catch (const toml::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(source, error.source()), std::string(error.description())));
  }
  Config changed = *config;
  for (const auto& [table_name, table_node] : tables) {
    const absl::string_view table(table_name.str().data(), table_name.str().size());
    const bool known =
        std::any_of(Keys().begin(), Keys().end(), [&](const Key& key) { return key.table == table; });
    const toml::table* entries = table_node.as_table();
    if (!known || entries == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(Where(source, table_name.source()), known ? "not a table: " : "unknown key: ", table));
    }
    for (const auto& entry : *entries) {
      const toml::key& name = entry.first;
      const std::string what =
          absl::StrCat(table, ".", absl::string_view(name.str().data(), name.str().size()));
      const auto key = std::find_if(Keys().begin(), Keys().end(), [&](const Key& candidate) {
        return candidate.table == table && candidate.name == name.str();
      });
      if (key == Keys().end()) {
        return absl::InvalidArgumentError(absl::StrCat(Where(source, name.source()), "unknown key: ", what));
      }
      absl::Status set = SetKey(*key, entry.second, what, &changed);
      if (!set.ok())
        return absl::InvalidArgumentError(absl::StrCat(Where(source, name.source()), set.message()));
    }
  }
  *config = changed;
  return absl::OkStatus();
}

absl::Status ApplyConfigFile(const std::string& path, Config* config) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const int error = errno;
    return absl::Status(error == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kFailedPrecondition,
                        absl::StrCat("cannot read the configuration ", path, ": ", strerror(error)));
  }
  std::stringstream text;
  text << file.rdbuf();
  if (file.bad()) return absl::FailedPreconditionError(absl::StrCat("cannot read the configuration ", path));
  return ApplyConfigText(text.str(), path, config);
}

void ApplyEnvironment(Config* config) {
  // systemd.exec(5): colon separated where a unit names several.
  const auto first = [](const char* name) {
    const char* value = getenv(name);
    const std::string all = value == nullptr ? "" : value;
    return all.substr(0, all.find(':'));
  };
  const std::string state = first("STATE_DIRECTORY");
  const std::string runtime = first("RUNTIME_DIRECTORY");
  if (absl::StartsWith(state, "/")) config->state_dir = state;
  if (absl::StartsWith(runtime, "/")) config->socket = absl::StrCat(runtime, "/control.sock");
}

absl::Status CheckConfig(const Config& config) {
  if (config.rotate_seconds < config.block_seconds) {
    return absl::InvalidArgumentError(absl::StrCat("store.rotate_seconds (", config.rotate_seconds,
                                                   ") is less than store.block_seconds (",
                                                   config.block_seconds, ")"));
  }
  if (config.max_mib != 0 && config.max_mib < 2 * config.rotate_mib) {
    return absl::InvalidArgumentError(absl::StrCat("store.max_mib (", config.max_mib,
                                                   ") leaves no room for two chunks of store.rotate_mib (",
                                                   config.rotate_mib, ")"));
  }
  if ((config.ring_kib & (config.ring_kib - 1)) != 0 || (config.ring_kib != 0 && config.ring_kib < 8)) {
    return absl::InvalidArgumentError(
        absl::StrCat("collect.ring_kib = ", config.ring_kib, ": 0 or a power of two from 8 on is meant"));
  }
  if (config.socket.size() > kMaxSocketPath) {
    return absl::InvalidArgumentError(
        absl::StrCat("the socket's path ", config.socket, " is longer than ", kMaxSocketPath, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace xenprof::daemon
