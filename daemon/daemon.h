// xenprofd from start to stop.
#ifndef DAEMON_DAEMON_H_
#define DAEMON_DAEMON_H_

#include "absl/status/status.h"
#include "daemon/config.h"

namespace xenprof::daemon {

// Runs until SIGTERM or SIGINT. An error: it could not begin, and why; everything is as it was then.
absl::Status RunDaemon(const Config& config);

}  // namespace xenprof::daemon

#endif  // DAEMON_DAEMON_H_
