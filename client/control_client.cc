#include "client/control_client.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace xenprof::client {
namespace {

constexpr uint32_t kProtocolVersion = 1;
constexpr absl::Duration kAnswerTimeout = absl::Seconds(10);
// Beyond the window's end: sealing, with names for everything sampled.
constexpr absl::Duration kSealingTimeout = absl::Minutes(2);

absl::Status FromError(const proto::Error& error) {
  const std::string text = absl::StrCat("xenprofd: ", error.text());
  switch (error.code()) {
    case proto::Error::BAD_REQUEST:
      return absl::InvalidArgumentError(text);
    case proto::Error::NOT_ALLOWED:
      return absl::PermissionDeniedError(text);
    case proto::Error::UNSUPPORTED_VERSION:
      return absl::UnimplementedError(text);
    case proto::Error::BUSY:
      return absl::ResourceExhaustedError(text);
    case proto::Error::TOO_LARGE:
      return absl::OutOfRangeError(text);
    default:
      return absl::InternalError(text);
  }
}

}  // namespace

absl::StatusOr<ControlClient> ControlClient::Connect(const std::string& socket_path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (socket_path.empty() || socket_path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("a socket's path has 1 to ", sizeof(address.sun_path) - 1,
                                                   " bytes: '", socket_path, "'"));
  }
  memcpy(address.sun_path, socket_path.data(), socket_path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return absl::InternalError(absl::StrCat("socket: ", strerror(errno)));
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int error = errno;
    const std::string reason = absl::StrCat(socket_path, ": ", strerror(error));
    if (error == ENOENT || error == ECONNREFUSED) {
      return absl::UnavailableError(
          absl::StrCat("xenprofd is not running (", reason, "); start it with: ", kStartCommand));
    }
    if (error == EACCES || error == EPERM) {
      return absl::PermissionDeniedError(absl::StrCat(reason, "; talking to xenprofd takes root"));
    }
    return absl::InternalError(reason);
  }
  return ControlClient(std::move(socket), socket_path);
}

absl::Status ControlClient::Send(proto::ControlEnvelope* request) {
  request->set_version(kProtocolVersion);
  request->set_id(++id_);
  absl::Status sent = WriteFrame(socket_.get(), request->SerializeAsString(), {}, kAnswerTimeout);
  if (sent.ok()) return sent;
  return absl::InternalError(absl::StrCat(name_, ": ", sent.message()));
}

absl::StatusOr<proto::ControlEnvelope> ControlClient::Receive(absl::Duration timeout,
                                                              std::vector<UniqueFd>* descriptors) {
  absl::StatusOr<SocketFrame> frame = ReadFrame(socket_.get(), timeout);
  if (!frame.ok()) {
    if (absl::IsOutOfRange(frame.status()) || absl::IsUnavailable(frame.status())) {
      return absl::InternalError(absl::StrCat(name_, ": xenprofd ended the connection before it answered"));
    }
    return absl::InternalError(absl::StrCat(name_, ": ", frame.status().message()));
  }
  proto::ControlEnvelope answer;
  if (!answer.ParseFromString(frame->bytes)) {
    return absl::InternalError(absl::StrCat(name_, ": what was received is no message of xenprofd"));
  }
  // An error that concerns no request of ours carries no id.
  if (answer.has_error() && (answer.id() == id_ || answer.id() == 0)) return FromError(answer.error());
  if (answer.version() != kProtocolVersion) {
    return absl::UnimplementedError(absl::StrCat(name_, ": xenprofd speaks version ", answer.version(),
                                                 " of the protocol, this is version ", kProtocolVersion));
  }
  if (answer.id() != id_) {
    return absl::InternalError(
        absl::StrCat(name_, ": an answer to request ", answer.id(), " instead of ", id_));
  }
  if (descriptors != nullptr) *descriptors = std::move(frame->descriptors);
  return answer;
}

absl::StatusOr<proto::StatusResponse> ControlClient::Status() {
  proto::ControlEnvelope request;
  request.mutable_status_request();
  absl::Status sent = Send(&request);
  if (!sent.ok()) return sent;
  absl::StatusOr<proto::ControlEnvelope> answer = Receive(kAnswerTimeout, nullptr);
  if (!answer.ok()) return answer.status();
  if (!answer->has_status_response())
    return absl::InternalError(absl::StrCat(name_, ": not an answer to status"));
  return std::move(*answer->mutable_status_response());
}

absl::StatusOr<ControlClient::Snapshot> ControlClient::TakeSnapshot(absl::Duration future,
                                                                    absl::Duration past,
                                                                    const OnProgress& on_progress) {
  proto::ControlEnvelope request;
  request.mutable_snapshot_request()->set_future_ns(absl::ToInt64Nanoseconds(future));
  request.mutable_snapshot_request()->set_past_ns(absl::ToInt64Nanoseconds(past));
  request.mutable_snapshot_request()->set_without_progress(on_progress == nullptr);
  absl::Status sent = Send(&request);
  if (!sent.ok()) return sent;
  Snapshot snapshot;
  bool responded = false;
  for (;;) {
    std::vector<UniqueFd> descriptors;
    absl::StatusOr<proto::ControlEnvelope> answer = Receive(future + kSealingTimeout, &descriptors);
    if (!answer.ok()) return answer.status();
    if (answer->has_snapshot_progress()) {
      if (on_progress) on_progress(answer->snapshot_progress());
    } else if (answer->has_snapshot_response()) {
      const proto::SnapshotResponse& response = answer->snapshot_response();
      if (static_cast<size_t>(response.chunks_size()) != descriptors.size()) {
        return absl::InternalError(absl::StrCat(name_, ": ", response.chunks_size(),
                                                " chunks were announced, ", descriptors.size(),
                                                " descriptors came"));
      }
      // Several messages when there are more chunks than one may carry.
      snapshot.start_ns =
          responded ? std::min<uint64_t>(snapshot.start_ns, response.start_ns()) : response.start_ns();
      snapshot.end_ns = std::max<uint64_t>(snapshot.end_ns, response.end_ns());
      for (int i = 0; i < response.chunks_size(); ++i) {
        snapshot.chunks.push_back({response.chunks(i), std::move(descriptors[i])});
      }
      responded = true;
    } else {
      return absl::InternalError(absl::StrCat(name_, ": not an answer to snapshot"));
    }
    if (answer->end()) break;
  }
  if (!responded) return absl::InternalError(absl::StrCat(name_, ": the snapshot ended without an answer"));
  return snapshot;
}

}  // namespace xenprof::client
