#include "xenprof/xen/cmdline.h"

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace xenprof::xen {
namespace {

// Xen's parse_bool: these words and nothing else.
std::optional<bool> ParseBool(absl::string_view text) {
  for (absl::string_view word : {"1", "on", "yes", "true", "enable"}) {
    if (text == word) return true;
  }
  for (absl::string_view word : {"0", "no", "off", "false", "disable"}) {
    if (text == word) return false;
  }
  return std::nullopt;
}

VpmuOption ParseVpmu(absl::string_view value, VpmuOption before) {
  VpmuOption result = before;
  for (absl::string_view part : absl::StrSplit(value, ',')) {
    if (const std::optional<bool> on = ParseBool(part)) {
      result = *on ? VpmuOption::kOn : VpmuOption::kOff;
    } else if (part == "bts" || part == "ipc" || part == "arch") {
      result = VpmuOption::kOn;
    } else if (part == "global") {
      result = VpmuOption::kGlobal;
    } else if (part == "hvm") {
      result = VpmuOption::kGuests;
    }
  }
  return result;
}

void Apply(absl::string_view name, absl::string_view value, bool has_value, bool negated,
           XenOptions* options) {
  // A bare boolean is on; "no-" in front turns it off and takes no value.
  const auto boolean = [&](bool before) {
    if (negated) return false;
    if (!has_value || value.empty()) return true;
    return ParseBool(value).value_or(before);
  };
  if (name == "vpmu") {
    options->vpmu_given = true;
    options->vpmu = negated ? VpmuOption::kOff : ParseVpmu(value, options->vpmu);
  } else if (name == "watchdog") {
    options->watchdog = value == "force" ? true : boolean(options->watchdog);
  } else if (name == "watchdog_timeout" && !negated) {
    uint64_t seconds = 0;
    if (absl::SimpleAtoi(value, &seconds)) options->watchdog = seconds != 0;
  } else if (name == "dom0_vcpus_pin") {
    options->dom0_vcpus_pin = boolean(options->dom0_vcpus_pin);
  } else if (name == "dom0_max_vcpus" && !negated) {
    options->dom0_max_vcpus = std::string(value);
  } else if (name == "dom0" && !negated) {
    options->dom0 = std::string(value);
  }
}

}  // namespace

XenOptions ParseXenCommandLine(absl::string_view command_line) {
  XenOptions options;
  for (absl::string_view word : absl::StrSplit(command_line, absl::ByAnyChar(" \t\n"), absl::SkipEmpty())) {
    const size_t equals = word.find('=');
    absl::string_view name = word.substr(0, equals);
    const bool has_value = equals != absl::string_view::npos;
    const absl::string_view value = has_value ? word.substr(equals + 1) : absl::string_view();
    const bool negated = absl::ConsumePrefix(&name, "no-");
    Apply(name, value, has_value, negated, &options);
  }
  return options;
}

}  // namespace xenprof::xen
