#include "daemon/control_server.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xenprof::daemon {
namespace {

using proto::ControlEnvelope;
using ::testing::HasSubstr;

constexpr uint64_t kMs = 1'000'000;

class ControlServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/control_XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    folder_ = path;
    options_.path = folder_ + "/sock";
    options_.patience_ns = 300 * kMs;
    options_.progress_ns = 30 * kMs;
  }
  void TearDown() override {
    server_.reset();
    for (std::thread& thread : threads_) thread.join();
    std::filesystem::remove_all(folder_);
  }

  void Serve() {
    ControlCalls calls;
    calls.get_status = [this](std::function<void(const proto::StatusResponse&)> done) {
      proto::StatusResponse status;
      status.set_producer("xenprofd test");
      status.set_state_dir(std::string(status_bytes_, 's'));
      status.set_samples(++asked_);
      if (!answer_) {
        held_.push_back(std::move(done));
        return;
      }
      done(status);
    };
    calls.snapshot = [this](uint64_t future_ns, uint64_t past_ns, bool progress,
                            std::function<void(absl::StatusOr<SnapshotResult>)> done) {
      progress_ = progress;
      threads_.emplace_back([this, future_ns, past_ns, done] {
        absl::SleepFor(absl::Nanoseconds(future_ns));
        if (!snapshot_status_.ok()) {
          done(snapshot_status_);
          return;
        }
        done(SnapshotResult{past_ns, future_ns, chunks_});
      });
    };
    calls.set_frequency = [this](uint32_t hz, const std::string& who,
                                 std::function<void(absl::StatusOr<uint32_t>)> done) {
      who_ = who;
      if (hz == 0) {
        done(absl::InvalidArgumentError("0 Hz"));
        return;
      }
      done(97u);
    };
    calls.samples = [this] { return samples_ += 10; };
    server_ = std::make_unique<ControlServer>(options_, std::move(calls));
    const absl::Status listening = server_->Listen();
    ASSERT_TRUE(listening.ok()) << listening;
    server_->Start();
  }

  UniqueFd Connect() {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, options_.path.data(), options_.path.size());
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0)
        << strerror(errno);
    return fd;
  }
  static ControlEnvelope Request(uint64_t id) {
    ControlEnvelope envelope;
    envelope.set_version(1);
    envelope.set_id(id);
    return envelope;
  }
  static ControlEnvelope StatusRequest(uint64_t id) {
    ControlEnvelope envelope = Request(id);
    envelope.mutable_status_request();
    return envelope;
  }
  static void Send(int fd, const ControlEnvelope& envelope) {
    const absl::Status sent = WriteFrame(fd, envelope.SerializeAsString(), {}, absl::Seconds(5));
    ASSERT_TRUE(sent.ok()) << sent;
  }
  static void SendRaw(int fd, const std::string& bytes) {
    ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // The next message; its descriptors go to `descriptors`.
  static absl::StatusOr<ControlEnvelope> Receive(int fd, std::vector<UniqueFd>* descriptors = nullptr) {
    absl::StatusOr<SocketFrame> frame = ReadFrame(fd, absl::Seconds(10));
    if (!frame.ok()) return frame.status();
    ControlEnvelope envelope;
    if (!envelope.ParseFromString(frame->bytes)) return absl::DataLossError("no envelope");
    if (descriptors != nullptr) *descriptors = std::move(frame->descriptors);
    return envelope;
  }
  static bool Closed(int fd) {
    const absl::StatusOr<SocketFrame> frame = ReadFrame(fd, absl::Seconds(10));
    return absl::IsOutOfRange(frame.status()) || absl::IsUnavailable(frame.status()) ||
           absl::IsDataLoss(frame.status());
  }
  void ExpectAlive() {
    UniqueFd fd = Connect();
    Send(fd.get(), StatusRequest(7));
    const absl::StatusOr<ControlEnvelope> answer = Receive(fd.get());
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->id(), 7u);
    EXPECT_EQ(answer->status_response().producer(), "xenprofd test");
  }

  std::string folder_;
  ControlOptions options_;
  std::atomic<bool> answer_ = true;
  std::atomic<uint64_t> asked_ = 0, samples_ = 0;
  size_t status_bytes_ = 10;
  std::vector<std::function<void(const proto::StatusResponse&)>> held_;
  absl::Status snapshot_status_;
  std::vector<std::string> chunks_;
  std::atomic<bool> progress_ = false;  // wanted by the last snapshot
  std::string who_;
  std::vector<std::thread> threads_;
  std::unique_ptr<ControlServer> server_;
};

TEST_F(ControlServerTest, AnswersWithTheIdOfTheRequest) {
  Serve();
  UniqueFd fd = Connect();
  for (uint64_t id : {uint64_t{1}, uint64_t{99}, ~uint64_t{0}}) {
    Send(fd.get(), StatusRequest(id));
    const absl::StatusOr<ControlEnvelope> answer = Receive(fd.get());
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->id(), id);
    EXPECT_EQ(answer->version(), 1u);
    EXPECT_TRUE(answer->end());
    EXPECT_TRUE(answer->has_status_response());
  }
}

TEST_F(ControlServerTest, TheSocketIsForItsOwnerAndGroup) {
  Serve();
  struct stat status;
  ASSERT_EQ(stat(options_.path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0660u);
  server_->Stop();
  EXPECT_NE(stat(options_.path.c_str(), &status), 0) << "removed at the end";
}

TEST_F(ControlServerTest, AStaleSocketIsReplacedALiveOneIsNot) {
  Serve();
  ControlServer second(options_, {});
  const absl::Status refused = second.Listen();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("another xenprofd answers there"));
  ExpectAlive();
  server_.reset();
  // A socket whose owner died.
  {
    UniqueFd stale(socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, options_.path.data(), options_.path.size());
    ASSERT_EQ(bind(stale.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  Serve();
  ExpectAlive();
}

TEST_F(ControlServerTest, AFileInItsPlaceStays) {
  std::ofstream(options_.path) << "precious";
  ControlServer server(options_, {});
  EXPECT_THAT(std::string(server.Listen().message()), HasSubstr("a file is in its place"));
  EXPECT_TRUE(std::filesystem::exists(options_.path));
}

TEST_F(ControlServerTest, UnknownGroupAndLongPath) {
  ControlOptions options = options_;
  options.group = "no-such-group-here";
  EXPECT_THAT(std::string(ControlServer(options, {}).Listen().message()), HasSubstr("no-such-group-here"));
  options = options_;
  options.path = "/" + std::string(200, 'x');
  EXPECT_THAT(std::string(ControlServer(options, {}).Listen().message()), HasSubstr("too long"));
}

TEST_F(ControlServerTest, SnapshotTellsProgressAndHandsChunksOver) {
  for (const char* name : {"one", "two"}) {
    chunks_.push_back(folder_ + "/" + name);
    std::ofstream(chunks_.back()) << "chunk " << name;
  }
  chunks_.push_back(folder_ + "/removed-meanwhile");
  Serve();
  UniqueFd fd = Connect();
  ControlEnvelope request = Request(5);
  request.mutable_snapshot_request()->set_future_ns(200 * kMs);
  request.mutable_snapshot_request()->set_past_ns(3);
  Send(fd.get(), request);
  int progress = 0;
  uint64_t elapsed = 0;
  while (true) {
    std::vector<UniqueFd> descriptors;
    const absl::StatusOr<ControlEnvelope> answer = Receive(fd.get(), &descriptors);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->id(), 5u);
    if (answer->has_snapshot_progress()) {
      EXPECT_FALSE(answer->end());
      EXPECT_GT(answer->snapshot_progress().elapsed_ns(), elapsed);
      EXPECT_EQ(answer->snapshot_progress().total_ns(), 200 * kMs);
      EXPECT_GT(answer->snapshot_progress().samples(), 0u);
      elapsed = answer->snapshot_progress().elapsed_ns();
      ++progress;
      continue;
    }
    ASSERT_TRUE(answer->has_snapshot_response()) << answer->error().text();
    EXPECT_TRUE(answer->end());
    ASSERT_EQ(answer->snapshot_response().chunks_size(), 2);
    ASSERT_EQ(descriptors.size(), 2u);
    char text[32] = {};
    ASSERT_GT(read(descriptors[1].get(), text, sizeof(text)), 0);
    EXPECT_STREQ(text, "chunk two");
    EXPECT_EQ(fcntl(descriptors[0].get(), F_GETFL) & O_ACCMODE, O_RDONLY);
    break;
  }
  EXPECT_GE(progress, 2);
  EXPECT_TRUE(progress_);
}

TEST_F(ControlServerTest, SnapshotTellsNoProgressToWhoWantsNone) {
  Serve();
  UniqueFd fd = Connect();
  ControlEnvelope request = Request(5);
  request.mutable_snapshot_request()->set_future_ns(200 * kMs);
  request.mutable_snapshot_request()->set_without_progress(true);
  Send(fd.get(), request);
  const absl::StatusOr<ControlEnvelope> answer = Receive(fd.get());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(answer->has_snapshot_response()) << answer->error().text();
  EXPECT_FALSE(progress_);
}

TEST_F(ControlServerTest, SnapshotsOfSeveralClientsRunSideBySide) {
  Serve();
  std::vector<UniqueFd> clients;
  const absl::Time begin = absl::Now();
  for (uint64_t i = 0; i < 5; ++i) {
    clients.push_back(Connect());
    ControlEnvelope request = Request(i);
    request.mutable_snapshot_request()->set_future_ns(300 * kMs);
    Send(clients.back().get(), request);
  }
  for (uint64_t i = 0; i < 5; ++i) {
    while (true) {
      const absl::StatusOr<ControlEnvelope> answer = Receive(clients[i].get());
      ASSERT_TRUE(answer.ok()) << answer.status();
      EXPECT_EQ(answer->id(), i);
      if (answer->end()) break;
    }
  }
  EXPECT_LT(absl::Now() - begin, absl::Milliseconds(1400));
}

TEST_F(ControlServerTest, ErrorsKeepTheirMeaning) {
  snapshot_status_ = absl::ResourceExhaustedError("16 snapshots are being taken already");
  Serve();
  UniqueFd fd = Connect();
  const auto error_of = [&](const ControlEnvelope& request) {
    Send(fd.get(), request);
    const absl::StatusOr<ControlEnvelope> answer = Receive(fd.get());
    EXPECT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(answer->end());
    EXPECT_TRUE(answer->has_error());
    return answer->error();
  };
  ControlEnvelope request = Request(1);
  request.mutable_snapshot_request()->set_past_ns(1);
  EXPECT_EQ(error_of(request).code(), proto::Error::BUSY);
  request.mutable_snapshot_request()->set_past_ns(0);
  EXPECT_EQ(error_of(request).code(), proto::Error::BAD_REQUEST);
  request.mutable_snapshot_request()->set_future_ns(~uint64_t{0});
  EXPECT_EQ(error_of(request).code(), proto::Error::BAD_REQUEST);
  request = Request(2);
  EXPECT_EQ(error_of(request).code(), proto::Error::BAD_REQUEST) << "no body";
  request.mutable_status_response();
  EXPECT_EQ(error_of(request).code(), proto::Error::BAD_REQUEST) << "an answer is no request";
  request = StatusRequest(3);
  request.set_version(2);
  EXPECT_EQ(error_of(request).code(), proto::Error::UNSUPPORTED_VERSION);
  request = Request(4);
  request.mutable_set_frequency_request()->set_frequency_hz(0);
  const proto::Error error = error_of(request);
  EXPECT_EQ(error.code(), proto::Error::BAD_REQUEST);
  EXPECT_EQ(error.text(), "0 Hz");
  // After all that the connection still works.
  request.mutable_set_frequency_request()->set_frequency_hz(500);
  Send(fd.get(), request);
  EXPECT_EQ(Receive(fd.get())->set_frequency_response().previous_hz(), 97u);
  EXPECT_THAT(who_, HasSubstr(absl::StrCat("uid=", getuid(), " pid=", getpid())));
}

TEST_F(ControlServerTest, OthersMayNotControl) {
  if (geteuid() != 0) GTEST_SKIP() << "takes root to become someone else";
  Serve();
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  ASSERT_EQ(chmod(options_.path.c_str(), 0666), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(10);
    UniqueFd fd = Connect();
    ControlEnvelope request = Request(1);
    request.mutable_set_frequency_request()->set_frequency_hz(5);
    Send(fd.get(), request);
    absl::StatusOr<ControlEnvelope> answer = Receive(fd.get());
    if (!answer.ok() || answer->error().code() != proto::Error::NOT_ALLOWED) _exit(11);
    request = Request(2);
    request.mutable_snapshot_request()->set_past_ns(5);
    Send(fd.get(), request);
    answer = Receive(fd.get());
    if (!answer.ok() || answer->error().code() != proto::Error::NOT_ALLOWED) _exit(12);
    Send(fd.get(), StatusRequest(3));
    answer = Receive(fd.get());
    _exit(answer.ok() && answer->has_status_response() ? 0 : 13);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// -- those who mean harm

TEST_F(ControlServerTest, ALyingLengthEndsTheConnection) {
  Serve();
  for (const std::string& bytes : {std::string("\xff\xff\xff\xff"), std::string("\x00\x00\x00\x40", 4),
                                   std::string("\x01\x00\x01\x00", 4) + std::string(100, 'x')}) {
    UniqueFd fd = Connect();
    SendRaw(fd.get(), bytes);
    const absl::StatusOr<ControlEnvelope> answer = Receive(fd.get());
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->error().code(), proto::Error::TOO_LARGE);
    EXPECT_TRUE(Closed(fd.get()));
  }
  ExpectAlive();
}

TEST_F(ControlServerTest, GarbageIsAnsweredNotFollowed) {
  Serve();
  UniqueFd fd = Connect();
  for (int i = 0; i < 200; ++i) {
    SendRaw(fd.get(), EncodeFrame(std::string(static_cast<size_t>(i % 37) + 1, static_cast<char>(0xf8 | i))));
    const absl::StatusOr<ControlEnvelope> answer = Receive(fd.get());
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(answer->has_error());
  }
  ExpectAlive();
}

TEST_F(ControlServerTest, HalfAMessageIsNotWaitedForForever) {
  Serve();
  UniqueFd half = Connect();
  SendRaw(half.get(), std::string("\x10\x00", 2));
  UniqueFd trickle = Connect();
  const std::string whole = EncodeFrame(std::string(60000, 'x'));
  const absl::Time begin = absl::Now();
  // A byte now and then does not prolong it.
  bool gone = false;
  for (size_t i = 0; i < 100 && !gone; ++i) {
    gone = send(trickle.get(), whole.data() + i, 1, MSG_NOSIGNAL) < 0;
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_TRUE(gone);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(2));
  EXPECT_TRUE(Closed(half.get()));
  ExpectAlive();
}

TEST_F(ControlServerTest, AReaderThatDoesNotReadIsLetGo) {
  status_bytes_ = 500000;
  options_.max_answer_bytes = 100 << 20;
  Serve();
  UniqueFd slow = Connect();
  for (uint64_t i = 0; i < 5; ++i) Send(slow.get(), StatusRequest(i));
  ExpectAlive();  // others are served meanwhile
  absl::SleepFor(absl::Milliseconds(800));
  // What is still in the socket's buffer may be read; then the end comes.
  absl::Status status;
  int messages = 0;
  while (status.ok() && messages < 10) {
    status = Receive(slow.get()).status();
    messages += status.ok();
  }
  EXPECT_FALSE(status.ok());
  EXPECT_LT(messages, 5);
  ExpectAlive();
}

TEST_F(ControlServerTest, AnswersWaitingForOneClientAreBounded) {
  status_bytes_ = 500000;
  options_.max_answer_bytes = 1 << 20;
  options_.patience_ns = 60'000'000'000;
  Serve();
  UniqueFd slow = Connect();
  bool gone = false;
  for (uint64_t i = 0; i < 200 && !gone; ++i) {
    gone = !WriteFrame(slow.get(), StatusRequest(i).SerializeAsString(), {}, absl::Milliseconds(200)).ok();
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_TRUE(gone);
  ExpectAlive();
}

TEST_F(ControlServerTest, RequestsInFlightAreBounded) {
  answer_ = false;
  Serve();
  UniqueFd fd = Connect();
  for (uint64_t i = 1; i <= 9; ++i) Send(fd.get(), StatusRequest(i));
  const absl::StatusOr<ControlEnvelope> answer = Receive(fd.get());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->id(), 9u);
  EXPECT_EQ(answer->error().code(), proto::Error::BUSY);
  EXPECT_EQ(asked_.load(), 8u);
  proto::StatusResponse status;
  for (auto& done : held_) done(status);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Receive(fd.get())->has_status_response());
}

TEST_F(ControlServerTest, ClientsAreBounded) {
  options_.max_clients = 3;
  Serve();
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(Connect());
    Send(clients.back().get(), StatusRequest(1));
    ASSERT_TRUE(Receive(clients.back().get()).ok());
  }
  UniqueFd fourth = Connect();
  const absl::StatusOr<ControlEnvelope> answer = Receive(fourth.get());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->error().code(), proto::Error::BUSY);
  EXPECT_TRUE(Closed(fourth.get()));
  clients.pop_back();
  absl::SleepFor(absl::Milliseconds(50));
  ExpectAlive();
}

TEST_F(ControlServerTest, IdleClientsAreLetGo) {
  options_.idle_ns = 100 * kMs;
  Serve();
  UniqueFd fd = Connect();
  EXPECT_TRUE(Closed(fd.get()));
}

TEST_F(ControlServerTest, WhoLeavesEarlyLeavesNothingBehind) {
  chunks_.push_back(folder_ + "/one");
  std::ofstream(chunks_.back()) << "chunk";
  Serve();
  for (int i = 0; i < 10; ++i) {
    UniqueFd fd = Connect();
    ControlEnvelope request = Request(1);
    request.mutable_snapshot_request()->set_future_ns(50 * kMs);
    Send(fd.get(), request);
  }
  absl::SleepFor(absl::Milliseconds(200));
  ExpectAlive();
}

TEST_F(ControlServerTest, SentDescriptorsAreNotTaken) {
  Serve();
  const auto count = [] {
    size_t n = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
    return n;
  };
  UniqueFd fd = Connect();
  Send(fd.get(), StatusRequest(1));
  ASSERT_TRUE(Receive(fd.get()).ok());
  const size_t before = count();
  std::vector<int> many(100, fd.get());
  ASSERT_TRUE(WriteFrame(fd.get(), StatusRequest(2).SerializeAsString(), many, absl::Seconds(1)).ok());
  ASSERT_TRUE(Receive(fd.get()).ok());
  EXPECT_EQ(count(), before);
}

TEST_F(ControlServerTest, StoppingAnswersWhatIsOnItsWay) {
  Serve();
  UniqueFd fd = Connect();
  ControlEnvelope request = Request(1);
  request.mutable_snapshot_request()->set_future_ns(150 * kMs);
  Send(fd.get(), request);
  absl::SleepFor(absl::Milliseconds(50));
  server_->Stop();
  absl::StatusOr<ControlEnvelope> answer = Receive(fd.get());
  while (answer.ok() && !answer->end()) answer = Receive(fd.get());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(answer->has_snapshot_response());
  EXPECT_TRUE(Closed(fd.get()));
}

}  // namespace
}  // namespace xenprof::daemon
