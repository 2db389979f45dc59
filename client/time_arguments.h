// Points and stretches of time as people type them.
#ifndef CLIENT_TIME_ARGUMENTS_H_
#define CLIENT_TIME_ARGUMENTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "xenprof/profile/inputs.h"

namespace xenprof::client {

// "30" (seconds), "1.5s", "500ms", "5min", "2h", "1d", and sums such as "1h30min"; positive.
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text);

// "2026-11-30T23:59:01.25Z" or with an offset; without one, and "2026-11-30 23:59[:01]" and "23:59[:01]"
// (today), in `zone`; "@1796083141.5": seconds since 1970.
absl::StatusOr<absl::Time> ParseTime(absl::string_view text, absl::Time now, absl::TimeZone zone);

struct WindowArguments {
  std::string from, to, last;  // empty: not given
};
// InvalidArgument names the option.
absl::StatusOr<profile::TimeWindow> ParseWindow(const WindowArguments& arguments);

}  // namespace xenprof::client

#endif  // CLIENT_TIME_ARGUMENTS_H_
