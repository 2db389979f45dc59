// The client's end of xenprofd's control socket: proto/control.proto.
#ifndef CLIENT_CONTROL_CLIENT_H_
#define CLIENT_CONTROL_CLIENT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "control.pb.h"
#include "xenprof/base/framing.h"
#include "xenprof/profile/inputs.h"

namespace xenprof::client {

// The command that starts the daemon, as told to who finds it not running.
inline constexpr char kStartCommand[] = "systemctl start xenprofd";

// Blocking, one call at a time. Errors are made for people; Unavailable: no daemon listens.
class ControlClient {
 public:
  static absl::StatusOr<ControlClient> Connect(const std::string& socket_path);
  // For tests: an already connected socket.
  ControlClient(UniqueFd socket, std::string name) : socket_(std::move(socket)), name_(std::move(name)) {}

  absl::StatusOr<proto::StatusResponse> Status();

  struct Snapshot {
    uint64_t start_ns = 0, end_ns = 0;   // CLOCK_MONOTONIC_RAW
    std::vector<profile::Input> chunks;  // by descriptor, named by path
  };
  using OnProgress = std::function<void(const proto::SnapshotProgress&)>;
  // Waits for the window's end and the chunks to be sealed. `on_progress` may be empty, which
  // costs the host less.
  absl::StatusOr<Snapshot> TakeSnapshot(absl::Duration future, absl::Duration past,
                                        const OnProgress& on_progress);

 private:
  absl::Status Send(proto::ControlEnvelope* request);
  // The next message for request `id_`, with its descriptors.
  absl::StatusOr<proto::ControlEnvelope> Receive(absl::Duration timeout, std::vector<UniqueFd>* descriptors);

  UniqueFd socket_;
  std::string name_;
  uint64_t id_ = 0;
};

}  // namespace xenprof::client

#endif  // CLIENT_CONTROL_CLIENT_H_
