// The daemon's log: stderr, with the journal's priority prefixes where the journal reads it. Messages are a
// sentence and key=value fields behind it.
#ifndef DAEMON_LOG_H_
#define DAEMON_LOG_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace xenprof::daemon {

// "debug", "info", "warning" or "error"; InvalidArgument for any other.
absl::Status SetUpLog(absl::string_view level);

void LogDebug(absl::string_view message);
void LogInfo(absl::string_view message);
void LogWarning(absl::string_view message);
void LogError(absl::string_view message);

}  // namespace xenprof::daemon

#endif  // DAEMON_LOG_H_
