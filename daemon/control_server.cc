#include "daemon/control_server.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/clock.h"
#include "daemon/log.h"

namespace xenprof::daemon {
namespace {

constexpr uint64_t kMaxSnapshotNs = 86400 * kSecondNs;
// Answers on their way when the daemon stops.
constexpr uint64_t kFarewellNs = kSecondNs / 2;
constexpr uint32_t kVersion = 1;

absl::Status SocketError(const std::string& path, absl::string_view what, int error) {
  return absl::InternalError(absl::StrCat("control socket ", path, ": ", what, ": ", strerror(error)));
}

proto::Error::Code CodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return proto::Error::BAD_REQUEST;
    case absl::StatusCode::kResourceExhausted:
      return proto::Error::BUSY;
    default:
      return proto::Error::FAILED;
  }
}

// Linux 4.13: the supplementary groups of the peer at the time it connected.
bool PeerHasGroup(int fd, uint32_t group) {
  gid_t groups[256];
  socklen_t size = sizeof(groups);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) != 0) return false;
  const size_t count = size / sizeof(gid_t);
  return std::find(groups, groups + count, group) != groups + count;
}

}  // namespace

ControlServer::ControlServer(const ControlOptions& options, ControlCalls calls)
    : options_(options), calls_(std::move(calls)), mailbox_(std::make_shared<Mailbox>()) {
  absl::MutexLock lock(&mailbox_->mutex);
  mailbox_->wake = &wake_;
}

ControlServer::~ControlServer() {
  Stop();
  absl::MutexLock lock(&mailbox_->mutex);
  mailbox_->wake = nullptr;
}

absl::Status ControlServer::Listen() {
  if (!wake_.valid()) return absl::ResourceExhaustedError("no descriptor left for the control socket");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (options_.path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("control socket ", options_.path, ": the path is too long"));
  }
  memcpy(address.sun_path, options_.path.data(), options_.path.size());
  if (!options_.group.empty()) {
    const group* entry = getgrnam(options_.group.c_str());
    if (entry == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("control.group: there is no group \"", options_.group, "\""));
    }
    group_id_ = entry->gr_gid;
  }
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  struct stat status;
  if (lstat(options_.path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) {
      return absl::FailedPreconditionError(
          absl::StrCat("control socket ", options_.path, ": a file is in its place"));
    }
    UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (connect(probe.get(), generic, sizeof(address)) == 0 || errno == EAGAIN) {
      return absl::FailedPreconditionError(
          absl::StrCat("control socket ", options_.path, ": another xenprofd answers there"));
    }
    // Left by one that was killed.
    if (unlink(options_.path.c_str()) != 0) return SocketError(options_.path, "cannot replace it", errno);
  }
  listener_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_.valid()) return SocketError(options_.path, "socket", errno);
  // Nobody gets in between binding and the group: a socket takes its mode from the umask.
  const mode_t old_mask = umask(0177);
  const int bound = bind(listener_.get(), generic, sizeof(address));
  const int error = errno;
  umask(old_mask);
  if (bound != 0) return SocketError(options_.path, "cannot bind", error);
  bound_ = true;
  if (group_id_ != ~0u && chown(options_.path.c_str(), static_cast<uid_t>(-1), group_id_) != 0) {
    return SocketError(options_.path, absl::StrCat("cannot give it to group ", options_.group), errno);
  }
  if (chmod(options_.path.c_str(), 0660) != 0)
    return SocketError(options_.path, "cannot set its mode", errno);
  if (listen(listener_.get(), 16) != 0) return SocketError(options_.path, "cannot listen", errno);
  return absl::OkStatus();
}

void ControlServer::Start() { thread_ = std::thread(&ControlServer::Run, this); }

void ControlServer::Stop() {
  if (thread_.joinable()) {
    {
      absl::MutexLock lock(&mailbox_->mutex);
      mailbox_->stop = true;
    }
    wake_.Signal();
    thread_.join();
  }
  if (bound_) unlink(options_.path.c_str());
  bound_ = false;
}

int ControlServer::WaitMs(uint64_t now_ns) const {
  uint64_t next = ~uint64_t{0};
  for (const auto& [id, client] : clients_) {
    if (client->half_since_ns != 0) next = std::min(next, client->half_since_ns + options_.patience_ns);
    if (client->unread_since_ns != 0) next = std::min(next, client->unread_since_ns + options_.patience_ns);
    if (client->requests == 0) next = std::min(next, client->heard_ns + options_.idle_ns);
  }
  for (const Progress& progress : progress_) next = std::min(next, progress.next_ns);
  if (accept_again_ns_ != 0) next = std::min(next, accept_again_ns_);
  if (next == ~uint64_t{0}) return -1;
  if (next <= now_ns) return 0;
  return static_cast<int>(std::min<uint64_t>((next - now_ns) / kMillisecondNs + 1, 1 << 30));
}

void ControlServer::Run() {
  pthread_setname_np(pthread_self(), "control");
  uint64_t stop_at_ns = 0;
  std::vector<pollfd> waits;
  std::vector<uint64_t> ids;
  while (true) {
    uint64_t now_ns = NowNs();
    waits.assign({{wake_.fd(), POLLIN, 0}, {accept_again_ns_ == 0 ? listener_.get() : -1, POLLIN, 0}});
    ids.clear();
    for (const auto& [id, client] : clients_) {
      const short events =
          static_cast<short>((client->close_when_sent ? 0 : POLLIN) | (client->out.empty() ? 0 : POLLOUT));
      waits.push_back({client->fd.get(), events, 0});
      ids.push_back(id);
    }
    int wait_ms = WaitMs(now_ns);
    if (stop_at_ns != 0 && (wait_ms < 0 || wait_ms > 20)) wait_ms = 20;
    if (poll(waits.data(), waits.size(), wait_ms) < 0 && errno != EINTR) {
      LogError(absl::StrCat("the control socket is lost reason=\"", strerror(errno), "\""));
      return;
    }
    now_ns = NowNs();
    wake_.Clear();
    std::vector<Answer> answers;
    bool stop;
    {
      absl::MutexLock lock(&mailbox_->mutex);
      answers.swap(mailbox_->answers);
      stop = mailbox_->stop;
    }
    for (Answer& answer : answers) Deliver(std::move(answer));
    TellProgress(now_ns);
    if (accept_again_ns_ != 0 && now_ns >= accept_again_ns_) accept_again_ns_ = 0;

    for (size_t i = 0; i < ids.size(); ++i) {
      auto entry = clients_.find(ids[i]);
      Client* client = entry->second.get();
      const short events = waits[i + 2].revents;
      bool keep = (events & (POLLERR | POLLNVAL)) == 0;
      if (keep && (events & (POLLIN | POLLHUP)) != 0) keep = Receive(ids[i], client, now_ns);
      if (keep) keep = Send(client, now_ns);
      if (keep && client->half_since_ns != 0) keep = now_ns < client->half_since_ns + options_.patience_ns;
      if (keep && client->unread_since_ns != 0)
        keep = now_ns < client->unread_since_ns + options_.patience_ns;
      if (keep && client->requests == 0) keep = now_ns < client->heard_ns + options_.idle_ns;
      if (!keep) clients_.erase(entry);
    }
    if ((waits[1].revents & POLLIN) != 0) Accept(now_ns);
    if (stop) {
      if (stop_at_ns == 0) {
        stop_at_ns = now_ns + kFarewellNs;
        listener_ = UniqueFd();
      }
      const bool waiting = std::any_of(clients_.begin(), clients_.end(), [](const auto& entry) {
        return !entry.second->out.empty() || entry.second->requests > 0;
      });
      if (!waiting || now_ns >= stop_at_ns) break;
    }
  }
  clients_.clear();
}

void ControlServer::Accept(uint64_t now_ns) {
  UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    // Out of descriptors: the connection stays in the backlog, and poll() would wake for it again and again.
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
      accept_again_ns_ = now_ns + kSecondNs;
    return;
  }
  auto client = std::make_unique<Client>(options_.max_request_bytes);
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
  client->fd = std::move(fd);
  client->uid = peer.uid;
  client->may_control = peer.uid == 0 || peer.uid == geteuid();
  client->may_snapshot =
      client->may_control ||
      (group_id_ != ~0u && (peer.gid == group_id_ || PeerHasGroup(client->fd.get(), group_id_)));
  client->who = absl::StrCat("uid=", peer.uid, " pid=", peer.pid);
  client->heard_ns = now_ns;
  if (clients_.size() >= options_.max_clients) {
    ReplyError(client.get(), 0, proto::Error::BUSY,
               absl::StrCat(options_.max_clients, " clients are connected already"));
    Send(client.get(), now_ns);
    return;
  }
  clients_.emplace(next_client_++, std::move(client));
}

bool ControlServer::Receive(uint64_t id, Client* client, uint64_t now_ns) {
  if (client->close_when_sent) return true;
  // One buffer's worth a turn: others come between. Descriptors a client sends are dropped by recv() itself.
  char buffer[16 << 10];
  const ssize_t size = recv(client->fd.get(), buffer, sizeof(buffer), 0);
  if (size == 0) return false;
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  absl::Status status = client->in.Append(absl::string_view(buffer, static_cast<size_t>(size)));
  while (status.ok()) {
    const std::optional<std::string> frame = client->in.Next();
    if (!frame.has_value()) {
      status = client->in.Append("");
      break;
    }
    client->heard_ns = now_ns;
    Handle(id, client, *frame, now_ns);
  }
  if (!status.ok()) {
    ReplyError(client, 0, proto::Error::TOO_LARGE, std::string(status.message()));
    client->close_when_sent = true;
  }
  if (client->in.empty()) {
    client->half_since_ns = 0;
  } else if (client->half_since_ns == 0 || client->heard_ns == now_ns) {
    client->half_since_ns = now_ns;
  }
  return client->out_bytes <= options_.max_answer_bytes;
}

bool ControlServer::Send(Client* client, uint64_t now_ns) {
  while (!client->out.empty()) {
    Outgoing& message = client->out.front();
    iovec part = {message.bytes.data() + message.sent, message.bytes.size() - message.sent};
    msghdr header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxFrameDescriptors * sizeof(int))];
    if (!message.descriptors.empty()) {
      // With the first byte. Fewer bytes than asked for may go, but never none of them together with
      // descriptors.
      memset(control, 0, sizeof(control));
      header.msg_control = control;
      header.msg_controllen = CMSG_SPACE(message.descriptors.size() * sizeof(int));
      cmsghdr* rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(message.descriptors.size() * sizeof(int));
      for (size_t i = 0; i < message.descriptors.size(); ++i) {
        const int fd = message.descriptors[i].get();
        memcpy(CMSG_DATA(rights) + i * sizeof(int), &fd, sizeof(fd));
      }
    }
    const ssize_t sent = sendmsg(client->fd.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return false;
      if (client->unread_since_ns == 0) client->unread_since_ns = now_ns;
      return true;
    }
    message.descriptors.clear();
    message.sent += static_cast<size_t>(sent);
    client->out_bytes -= static_cast<size_t>(sent);
    client->unread_since_ns = 0;
    if (message.sent == message.bytes.size()) client->out.pop_front();
  }
  return !client->close_when_sent;
}

void ControlServer::Reply(Client* client, uint64_t request, proto::ControlEnvelope envelope,
                          std::vector<UniqueFd> descriptors) {
  envelope.set_version(kVersion);
  envelope.set_id(request);
  std::string bytes = envelope.SerializeAsString();
  if (bytes.size() > kMaxFrameBytes) {
    ReplyError(client, request, proto::Error::TOO_LARGE, "the answer is larger than a message may be");
    return;
  }
  Outgoing message;
  message.bytes = EncodeFrame(bytes);
  message.descriptors = std::move(descriptors);
  client->out_bytes += message.bytes.size();
  client->out.push_back(std::move(message));
}

void ControlServer::ReplyError(Client* client, uint64_t request, proto::Error::Code code,
                               const std::string& text) {
  proto::ControlEnvelope envelope;
  envelope.mutable_error()->set_code(code);
  envelope.mutable_error()->set_text(text);
  envelope.set_end(true);
  Reply(client, request, std::move(envelope), {});
}

void ControlServer::Handle(uint64_t id, Client* client, const std::string& bytes, uint64_t now_ns) {
  proto::ControlEnvelope envelope;
  if (!envelope.ParseFromString(bytes)) {
    ReplyError(client, 0, proto::Error::BAD_REQUEST, "this is no ControlEnvelope");
    return;
  }
  const uint64_t request = envelope.id();
  if (envelope.version() != kVersion) {
    ReplyError(
        client, request, proto::Error::UNSUPPORTED_VERSION,
        absl::StrCat("version ", envelope.version(), " is not spoken here, version ", kVersion, " is"));
    return;
  }
  if (client->requests >= options_.max_requests) {
    ReplyError(client, request, proto::Error::BUSY,
               absl::StrCat(options_.max_requests, " requests of this connection are unanswered"));
    return;
  }
  const auto post = [mailbox = mailbox_](Answer answer) { PostAnswer(mailbox.get(), std::move(answer)); };
  switch (envelope.body_case()) {
    case proto::ControlEnvelope::kStatusRequest:
      ++client->requests;
      calls_.get_status([post, id, request](const proto::StatusResponse& status) {
        Answer answer{id, request, {}, {}};
        *answer.envelope.mutable_status_response() = status;
        post(std::move(answer));
      });
      break;
    case proto::ControlEnvelope::kSnapshotRequest:
      HandleSnapshot(id, client, request, envelope.snapshot_request(), now_ns);
      break;
    case proto::ControlEnvelope::kSetFrequencyRequest:
      if (!client->may_control) {
        ReplyError(client, request, proto::Error::NOT_ALLOWED, "only root may change the frequency");
        break;
      }
      ++client->requests;
      calls_.set_frequency(
          envelope.set_frequency_request().frequency_hz(), client->who,
          [post, id, request](absl::StatusOr<uint32_t> previous) {
            Answer answer{id, request, {}, {}};
            if (previous.ok()) {
              answer.envelope.mutable_set_frequency_response()->set_previous_hz(*previous);
            } else {
              answer.envelope.mutable_error()->set_code(CodeOf(previous.status()));
              answer.envelope.mutable_error()->set_text(std::string(previous.status().message()));
            }
            post(std::move(answer));
          });
      break;
    default:
      ReplyError(client, request, proto::Error::BAD_REQUEST, "this message is no request");
      break;
  }
}

void ControlServer::HandleSnapshot(uint64_t id, Client* client, uint64_t request,
                                   const proto::SnapshotRequest& snapshot, uint64_t now_ns) {
  if (!client->may_snapshot) {
    ReplyError(client, request, proto::Error::NOT_ALLOWED,
               options_.group.empty()
                   ? "only root may take snapshots"
                   : absl::StrCat("only root and group ", options_.group, " may take snapshots"));
    return;
  }
  const uint64_t future_ns = snapshot.future_ns(), past_ns = snapshot.past_ns();
  if (future_ns == 0 && past_ns == 0) {
    ReplyError(client, request, proto::Error::BAD_REQUEST, "a snapshot of no time at all");
    return;
  }
  if (future_ns > kMaxSnapshotNs || past_ns > 366 * kMaxSnapshotNs) {
    ReplyError(client, request, proto::Error::BAD_REQUEST,
               "a snapshot reaches a day ahead and a year back at most");
    return;
  }
  ++client->requests;
  const bool progress = future_ns > 0 && !snapshot.without_progress();
  if (progress) {
    progress_.push_back({id, request, now_ns, future_ns, now_ns + options_.progress_ns, calls_.samples()});
  }
  calls_.snapshot(future_ns, past_ns, progress,
                  [mailbox = mailbox_, id, request](absl::StatusOr<SnapshotResult> result) {
                    Answer answer{id, request, {}, {}};
                    if (result.ok()) {
                      proto::SnapshotResponse* response = answer.envelope.mutable_snapshot_response();
                      response->set_start_ns(result->start_ns);
                      response->set_end_ns(result->end_ns);
                      answer.files = result->chunks;
                    } else {
                      answer.envelope.mutable_error()->set_code(CodeOf(result.status()));
                      answer.envelope.mutable_error()->set_text(std::string(result.status().message()));
                    }
                    PostAnswer(mailbox.get(), std::move(answer));
                  });
}

void ControlServer::PostAnswer(Mailbox* mailbox, Answer answer) {
  absl::MutexLock lock(&mailbox->mutex);
  mailbox->answers.push_back(std::move(answer));
  if (mailbox->wake != nullptr) mailbox->wake->Signal();
}

void ControlServer::Deliver(Answer answer) {
  std::erase_if(progress_, [&](const Progress& progress) {
    return progress.client == answer.client && progress.request == answer.request;
  });
  auto entry = clients_.find(answer.client);
  if (entry == clients_.end()) return;  // it did not wait
  Client* client = entry->second.get();
  --client->requests;
  client->heard_ns = NowNs();
  if (answer.files.size() > kMaxFrameDescriptors) {
    ReplyError(client, answer.request, proto::Error::TOO_LARGE,
               absl::StrCat("the window spans ", answer.files.size(), " chunks, ", kMaxFrameDescriptors,
                            " can be handed over at a time: ask for less"));
    return;
  }
  std::vector<UniqueFd> descriptors;
  for (const std::string& path : answer.files) {
    UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd.valid()) {
      if (errno == ENOENT) continue;  // the quota was quicker
      ReplyError(client, answer.request, proto::Error::FAILED,
                 absl::StrCat("cannot open ", path, ": ", strerror(errno)));
      return;
    }
    answer.envelope.mutable_snapshot_response()->add_chunks(path);
    descriptors.push_back(std::move(fd));
  }
  answer.envelope.set_end(true);
  Reply(client, answer.request, std::move(answer.envelope), std::move(descriptors));
}

void ControlServer::TellProgress(uint64_t now_ns) {
  std::erase_if(progress_, [&](const Progress& progress) { return !clients_.contains(progress.client); });
  for (Progress& progress : progress_) {
    if (now_ns < progress.next_ns) continue;
    progress.next_ns = now_ns + options_.progress_ns;
    Client* client = clients_[progress.client].get();
    // A client that does not read gets no more of it.
    if (!client->out.empty()) continue;
    proto::ControlEnvelope envelope;
    proto::SnapshotProgress* told = envelope.mutable_snapshot_progress();
    told->set_elapsed_ns(std::min(now_ns - progress.begin_ns, progress.total_ns));
    told->set_total_ns(progress.total_ns);
    const uint64_t samples = calls_.samples();
    told->set_samples(samples - std::min(samples, progress.samples_at_begin));
    Reply(client, progress.request, std::move(envelope), {});
  }
}

}  // namespace xenprof::daemon
