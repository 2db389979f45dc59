// The control socket: proto/control.proto over AF_UNIX. One thread, many clients, none of whom is trusted
// with more than its own connection.
#ifndef DAEMON_CONTROL_SERVER_H_
#define DAEMON_CONTROL_SERVER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "control.pb.h"
#include "daemon/event_fd.h"
#include "daemon/recorder.h"
#include "xenprof/base/framing.h"

namespace xenprof::daemon {

// What the socket can ask for. `done` may be called on any thread, at once or later, once.
struct ControlCalls {
  std::function<void(std::function<void(const proto::StatusResponse&)> done)> get_status;
  // `progress`: `samples` is asked meanwhile, and should be up to date.
  std::function<void(uint64_t future_ns, uint64_t past_ns, bool progress,
                     std::function<void(absl::StatusOr<SnapshotResult>)> done)>
      snapshot;
  std::function<void(uint32_t hz, const std::string& who, std::function<void(absl::StatusOr<uint32_t>)> done)>
      set_frequency;
  std::function<uint64_t()> samples;  // so far, for progress
};

struct ControlOptions {
  std::string path;
  std::string group;  // may take snapshots too; "": root only
  uint32_t max_clients = 32;
  // A message must be whole within this time, and an answer read.
  uint64_t patience_ns = 10'000'000'000;
  // A client that asks for nothing is let go after this.
  uint64_t idle_ns = 600'000'000'000;
  uint64_t progress_ns = 1'000'000'000;
  size_t max_request_bytes = 64 << 10;
  size_t max_answer_bytes = 4 << 20;  // waiting for one client
  size_t max_requests = 8;            // of one client at a time
};

class ControlServer {
 public:
  ControlServer(const ControlOptions& options, ControlCalls calls);
  ~ControlServer();

  // Binds the socket, mode 0660. A stale one is replaced; FailedPrecondition when a daemon answers there.
  absl::Status Listen();
  void Start();
  // Answers that are on their way get a moment, then all connections are closed and the socket is removed.
  void Stop();

 private:
  struct Outgoing {
    std::string bytes;
    size_t sent = 0;
    std::vector<UniqueFd> descriptors;
  };
  struct Client {
    UniqueFd fd;
    uint32_t uid = ~0u;
    bool may_snapshot = false, may_control = false;
    std::string who;  // "uid=0 pid=17", for the log
    FrameBuffer in;
    std::deque<Outgoing> out;
    size_t out_bytes = 0;
    uint64_t heard_ns = 0;         // last whole request
    uint64_t half_since_ns = 0;    // a message has begun and is not whole
    uint64_t unread_since_ns = 0;  // an answer waits for its reader
    size_t requests = 0;           // in flight
    bool close_when_sent = false;

    explicit Client(size_t max_bytes) : in(max_bytes) {}
  };
  struct Progress {
    uint64_t client, request;
    uint64_t begin_ns, total_ns, next_ns;
    uint64_t samples_at_begin;
  };
  // What another thread has found out for a client.
  struct Answer {
    uint64_t client;
    uint64_t request;
    proto::ControlEnvelope envelope;
    std::vector<std::string> files;
  };

  // Shared with callbacks that may outlive this.
  struct Mailbox {
    absl::Mutex mutex;
    std::vector<Answer> answers ABSL_GUARDED_BY(mutex);
    EventFd* wake ABSL_GUARDED_BY(mutex) = nullptr;
    bool stop ABSL_GUARDED_BY(mutex) = false;
  };

  void Run();
  int WaitMs(uint64_t now_ns) const;
  void Accept(uint64_t now_ns);
  // Each returns false when the client is to go.
  bool Receive(uint64_t id, Client* client, uint64_t now_ns);
  bool Send(Client* client, uint64_t now_ns);
  void Handle(uint64_t id, Client* client, const std::string& bytes, uint64_t now_ns);
  void HandleSnapshot(uint64_t id, Client* client, uint64_t request, const proto::SnapshotRequest& snapshot,
                      uint64_t now_ns);
  void Reply(Client* client, uint64_t request, proto::ControlEnvelope envelope,
             std::vector<UniqueFd> descriptors);
  void ReplyError(Client* client, uint64_t request, proto::Error::Code code, const std::string& text);
  void Deliver(Answer answer);
  static void PostAnswer(Mailbox* mailbox, Answer answer);
  void TellProgress(uint64_t now_ns);

  const ControlOptions options_;
  const ControlCalls calls_;
  uint32_t group_id_ = ~0u;
  UniqueFd listener_;
  bool bound_ = false;
  uint64_t accept_again_ns_ = 0;
  EventFd wake_;
  std::thread thread_;
  uint64_t next_client_ = 1;
  std::map<uint64_t, std::unique_ptr<Client>> clients_;
  std::vector<Progress> progress_;

  std::shared_ptr<Mailbox> mailbox_;
};

}  // namespace xenprof::daemon

#endif  // DAEMON_CONTROL_SERVER_H_
