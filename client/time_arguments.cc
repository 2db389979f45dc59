#include "client/time_arguments.h"

#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace xenprof::client {
namespace {

absl::Status BadDuration(absl::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is no duration; examples: 30 (seconds), 500ms, 5min, 2h, 1d"));
}

// Length of the number (digits and one dot) `text` begins with.
size_t NumberLength(absl::string_view text) {
  size_t length = 0;
  while (length < text.size() && (absl::ascii_isdigit(text[length]) || text[length] == '.')) ++length;
  return length;
}

absl::Duration Unit(absl::string_view name) {
  if (name.empty() || name == "s" || name == "sec") return absl::Seconds(1);
  if (name == "ns") return absl::Nanoseconds(1);
  if (name == "us") return absl::Microseconds(1);
  if (name == "ms") return absl::Milliseconds(1);
  if (name == "m" || name == "min") return absl::Minutes(1);
  if (name == "h") return absl::Hours(1);
  if (name == "d") return absl::Hours(24);
  return absl::ZeroDuration();
}

}  // namespace

absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text) {
  absl::Duration sum;
  absl::string_view rest = text;
  if (rest.empty()) return BadDuration(text);
  while (!rest.empty()) {
    const size_t digits = NumberLength(rest);
    double number;
    if (digits == 0 || !absl::SimpleAtod(rest.substr(0, digits), &number)) return BadDuration(text);
    rest.remove_prefix(digits);
    size_t letters = 0;
    while (letters < rest.size() && absl::ascii_isalpha(rest[letters])) ++letters;
    const absl::Duration unit = Unit(rest.substr(0, letters));
    if (unit == absl::ZeroDuration()) return BadDuration(text);
    rest.remove_prefix(letters);
    sum += number * unit;
  }
  // What nanoseconds in 64 bits hold, less a margin.
  if (sum <= absl::ZeroDuration() || sum > absl::Hours(24 * 365 * 100)) return BadDuration(text);
  return sum;
}

absl::StatusOr<absl::Time> ParseTime(absl::string_view text, absl::Time now, absl::TimeZone zone) {
  if (!text.empty() && text.front() == '@') {
    double seconds;
    if (absl::SimpleAtod(text.substr(1), &seconds) && std::isfinite(seconds) && std::abs(seconds) < 9e9) {
      return absl::UnixEpoch() + absl::Seconds(seconds);
    }
  }
  const std::string day = absl::FormatTime("%Y-%m-%d ", now, zone);
  const std::string full(text), today = absl::StrCat(day, text);
  absl::Time time;
  std::string error;
  for (const char* format : {absl::RFC3339_full, "%Y-%m-%dT%H:%M:%E*S", "%Y-%m-%dT%H:%M",
                             "%Y-%m-%d %H:%M:%E*S", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%E*S%Ez", "%Y-%m-%d"}) {
    if (absl::ParseTime(format, full, zone, &time, &error)) return time;
  }
  for (const char* format : {"%Y-%m-%d %H:%M:%E*S", "%Y-%m-%d %H:%M"}) {
    if (absl::ParseTime(format, today, zone, &time, &error)) return time;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is no time; examples: 2026-11-30T23:59:01Z, '2026-11-30 23:59', 23:59:01, @1796083141"));
}

absl::StatusOr<profile::TimeWindow> ParseWindow(const WindowArguments& arguments) {
  profile::TimeWindow window;
  const auto at = [&](absl::string_view option, const std::string& text, int64_t* to) -> absl::Status {
    if (text.empty()) return absl::OkStatus();
    const absl::StatusOr<absl::Time> time = ParseTime(text, absl::Now(), absl::LocalTimeZone());
    if (!time.ok()) return absl::InvalidArgumentError(absl::StrCat(option, ": ", time.status().message()));
    *to = absl::ToUnixNanos(*time);
    return absl::OkStatus();
  };
  absl::Status status = at("--from", arguments.from, &window.start_ns);
  if (status.ok()) status = at("--to", arguments.to, &window.end_ns);
  if (!status.ok()) return status;
  if (window.start_ns >= window.end_ns) return absl::InvalidArgumentError("--from is not before --to");
  if (!arguments.last.empty()) {
    const absl::StatusOr<absl::Duration> last = ParseDuration(arguments.last);
    if (!last.ok()) return absl::InvalidArgumentError(absl::StrCat("--last: ", last.status().message()));
    window.last_ns = static_cast<uint64_t>(absl::ToInt64Nanoseconds(*last));
  }
  return window;
}

}  // namespace xenprof::client
