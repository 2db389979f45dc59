// The folder of a daemon: made when missing, held by one daemon at a time.
#ifndef DAEMON_STATE_DIR_H_
#define DAEMON_STATE_DIR_H_

#include <string>

#include "absl/status/statusor.h"
#include "xenprof/base/framing.h"

namespace xenprof::daemon {

// Makes `path` (mode 0750, its parents too) and locks it as long as the descriptor lives; the kernel drops
// the lock of a daemon that dies. FailedPrecondition: another one has it, with its pid. Other errors name the
// path and the reason.
absl::StatusOr<UniqueFd> HoldStateDir(const std::string& path);

}  // namespace xenprof::daemon

#endif  // DAEMON_STATE_DIR_H_
