// The daemon as a process: started, asked, killed, started again.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "control.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/busy_cpus.h"
#include "xenprof/base/framing.h"
#include "xenprof/chunk/reader.h"
#include "xenprof/chunk/store.h"

namespace xenprof {
namespace {

using proto::ControlEnvelope;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class DaemonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/daemon_XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    folder_ = path;
    state_ = folder_ + "/state";
    socket_ = folder_ + "/sock";
  }
  void TearDown() override {
    if (pid_ > 0) Kill(SIGKILL);
    if (HasFailure()) printf("%s\n", Log().c_str());
    fs::remove_all(folder_);
  }

  std::string Log() const {
    std::ifstream file(folder_ + "/log");
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  pid_t Spawn(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), XENPROF_DAEMON);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
      const int log = open((folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      dup2(log, STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    return pid;
  }
  int ExitOf(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // What the test configures: short blocks.
  std::string ConfigFile(const std::string& more = "") {
    const std::string path = folder_ + "/xenprofd.toml";
    std::ofstream(path)
        << "[collect]\nevent = \"cpu-clock\"\nfrequency_hz = 499\n[store]\nblock_seconds = 1\n"
        << more;
    return path;
  }
  // False: this machine does not let us sample.
  bool Start(const std::string& config_more = "") {
    pid_ = Spawn({"--config", ConfigFile(config_more), "--state-dir", state_, "--socket", socket_,
                  "--log-level", "debug"});
    for (int i = 0; i < 400; ++i) {
      int status;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = 0;
        const bool permission = Log().find("perf_event_paranoid") != std::string::npos;
        EXPECT_TRUE(permission) << Log();
        return false;
      }
      if (fs::exists(socket_) && Ask(StatusRequest()).ok()) return true;
      absl::SleepFor(absl::Milliseconds(25));
    }
    ADD_FAILURE() << "the daemon does not answer";
    return false;
  }
  int Kill(int signal) {
    kill(pid_, signal);
    const int status = ExitOf(pid_);
    pid_ = 0;
    return status;
  }

  static ControlEnvelope StatusRequest() {
    ControlEnvelope envelope;
    envelope.mutable_status_request();
    return envelope;
  }
  // The last answer to `request`; its descriptors go to `descriptors`.
  absl::StatusOr<ControlEnvelope> Ask(ControlEnvelope request, std::vector<UniqueFd>* descriptors = nullptr,
                                      int* progress = nullptr) {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, socket_.data(), socket_.size());
    if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      return absl::UnavailableError(strerror(errno));
    }
    request.set_version(1);
    request.set_id(42);
    absl::Status sent = WriteFrame(fd.get(), request.SerializeAsString(), {}, absl::Seconds(5));
    if (!sent.ok()) return sent;
    while (true) {
      absl::StatusOr<SocketFrame> frame = ReadFrame(fd.get(), absl::Seconds(60));
      if (!frame.ok()) return frame.status();
      ControlEnvelope answer;
      if (!answer.ParseFromString(frame->bytes)) return absl::DataLossError("no envelope");
      if (!answer.end()) {
        if (progress != nullptr) ++*progress;
        continue;
      }
      if (descriptors != nullptr) *descriptors = std::move(frame->descriptors);
      return answer;
    }
  }
  std::vector<std::string> Chunks() const {
    std::vector<std::string> paths;
    absl::StatusOr<std::vector<chunk::StoredChunk>> chunks = chunk::ListChunks(state_);
    if (!chunks.ok()) return paths;
    for (const chunk::StoredChunk& stored : *chunks) paths.push_back(stored.path);
    return paths;
  }
  size_t Partials() const {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(state_)) count += entry.path().extension() == ".partial";
    return count;
  }
  static chunk::VerifyReport Good(const std::string& path) {
    absl::StatusOr<chunk::VerifyReport> report = chunk::Verify(path);
    EXPECT_TRUE(report.ok()) << report.status();
    if (!report.ok()) return {};
    EXPECT_TRUE(report->sealed);
    for (const chunk::Damage& damage : report->problems) ADD_FAILURE() << path << ": " << damage.reason;
    return *report;
  }

  BusyCpus busy_;
  std::string folder_, state_, socket_;
  pid_t pid_ = 0;
};

#define START_OR_SKIP(...) \
  if (!Start(__VA_ARGS__)) GTEST_SKIP() << "sampling whole CPUs is not permitted here"

// What the daemon has to find and name, whatever else the machine does.
extern "C" __attribute__((noinline)) void BurnTimeInTheTestProgram(absl::Duration duration) {
  const absl::Time end = absl::Now() + duration;
  volatile uint64_t sum = 0;
  while (absl::Now() < end) {
    for (int i = 0; i < 1000000; ++i) sum = sum + i;
  }
}

bool HasFunction(const std::string& path, const std::string& name) {
  auto reader = chunk::ChunkReader::Open(path);
  EXPECT_TRUE(reader.ok()) << reader.status();
  proto::Payload payload;
  while (reader.ok() && (*reader)->Next(&payload).value_or(false)) {
    for (const std::string& text : payload.symbols().strings()) {
      if (text == name) return true;
    }
  }
  return false;
}

TEST_F(DaemonTest, CollectsAndSealsOnStop) {
  START_OR_SKIP();
  BurnTimeInTheTestProgram(absl::Milliseconds(2500));
  const absl::StatusOr<ControlEnvelope> answer = Ask(StatusRequest());
  ASSERT_TRUE(answer.ok()) << answer.status();
  const proto::StatusResponse& status = answer->status_response();
  EXPECT_GT(status.samples(), 1000u);
  EXPECT_EQ(status.lost(), 0u);
  EXPECT_TRUE(status.writing());
  EXPECT_EQ(status.event().name(), "cpu-clock");
  EXPECT_GT(status.memory_bytes(), 1u << 20);
  EXPECT_LT(status.memory_bytes(), 48u << 20);
  for (const auto& cpu : status.cpus()) EXPECT_GT(cpu.last_sample_ns(), 0u) << cpu.cpu();
  EXPECT_EQ(Kill(SIGTERM), 0);
  EXPECT_EQ(Partials(), 0u);
  ASSERT_EQ(Chunks().size(), 1u);
  const chunk::VerifyReport report = Good(Chunks()[0]);
  EXPECT_GE(report.samples, status.samples());
  EXPECT_GE(report.blocks, 2u);
  EXPECT_TRUE(HasFunction(Chunks()[0], "BurnTimeInTheTestProgram"));
  EXPECT_FALSE(fs::exists(socket_));
}

TEST_F(DaemonTest, SnapshotsAnswerWithWholeChunks) {
  START_OR_SKIP();
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([this] {
      ControlEnvelope request;
      request.mutable_snapshot_request()->set_future_ns(1'000'000'000);
      const absl::StatusOr<ControlEnvelope> answer = Ask(request);
      ASSERT_TRUE(answer.ok()) << answer.status();
      EXPECT_GE(answer->snapshot_response().chunks_size(), 1) << answer->error().text();
    });
  }
  ControlEnvelope request;
  request.mutable_snapshot_request()->set_future_ns(2'000'000'000);
  request.mutable_snapshot_request()->set_past_ns(300'000'000);
  std::vector<UniqueFd> descriptors;
  int progress = 0;
  const absl::StatusOr<ControlEnvelope> answer = Ask(request, &descriptors, &progress);
  for (std::thread& other : others) other.join();
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_TRUE(answer->has_snapshot_response()) << answer->error().text();
  const proto::SnapshotResponse& response = answer->snapshot_response();
  EXPECT_EQ(response.end_ns() - response.start_ns(), 2'300'000'000u);
  ASSERT_EQ(descriptors.size(), static_cast<size_t>(response.chunks_size()));
  EXPECT_GE(progress, 2);
  uint64_t until_ns = 0, since_ns = ~uint64_t{0}, samples = 0;
  for (size_t i = 0; i < descriptors.size(); ++i) {
    absl::StatusOr<std::unique_ptr<chunk::ChunkReader>> reader =
        chunk::ChunkReader::FromDescriptor(descriptors[i].release(), response.chunks(static_cast<int>(i)));
    ASSERT_TRUE(reader.ok()) << reader.status();
    absl::StatusOr<proto::Trailer> trailer = (*reader)->ReadTrailer();
    ASSERT_TRUE(trailer.ok()) << trailer.status();
    until_ns = std::max(until_ns, trailer->end_ns());
    since_ns = std::min(since_ns, trailer->start_ns());
    samples += trailer->samples();
  }
  EXPECT_GE(until_ns, response.end_ns());
  EXPECT_GT(samples, 1500u);
  EXPECT_EQ(Kill(SIGTERM), 0);
  for (const std::string& path : Chunks()) Good(path);
}

TEST_F(DaemonTest, AfterSigkillOnlyTheUnfinishedBlockIsGone) {
  START_OR_SKIP();
  absl::SleepFor(absl::Milliseconds(3600));
  const absl::StatusOr<ControlEnvelope> answer = Ask(StatusRequest());
  ASSERT_TRUE(answer.ok()) << answer.status();
  const uint64_t samples = answer->status_response().samples();
  Kill(SIGKILL);
  EXPECT_TRUE(Chunks().empty());
  EXPECT_EQ(Partials(), 1u);
  ASSERT_TRUE(Start());
  for (int i = 0; i < 1200 && Chunks().empty(); ++i) absl::SleepFor(absl::Milliseconds(25));
  ASSERT_EQ(Chunks().size(), 1u);
  EXPECT_EQ(Partials(), 1u) << "the new one";
  const chunk::VerifyReport report = Good(Chunks()[0]);
  EXPECT_GE(report.blocks, 2u);
  // Blocks of one second: no more than one, and what came between the question and the kill, is missing.
  EXPECT_LE(report.samples, samples + 500);
  EXPECT_GT(report.samples + 1700, samples);
  EXPECT_EQ(Kill(SIGTERM), 0);
  EXPECT_EQ(Chunks().size(), 2u);
  EXPECT_EQ(Partials(), 0u);
}

TEST_F(DaemonTest, FrequencyIsSetAndKeptInTheChunk) {
  START_OR_SKIP();
  ControlEnvelope request;
  request.mutable_set_frequency_request()->set_frequency_hz(101);
  absl::StatusOr<ControlEnvelope> answer = Ask(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->set_frequency_response().previous_hz(), 499u) << answer->error().text();
  request.mutable_set_frequency_request()->set_frequency_hz(2000000000);
  answer = Ask(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_THAT(answer->error().text(), HasSubstr("perf_event_max_sample_rate"));
  EXPECT_EQ(Ask(StatusRequest())->status_response().event().frequency_hz(), 101u);
  EXPECT_EQ(Kill(SIGTERM), 0);
  ASSERT_EQ(Chunks().size(), 1u);
  absl::StatusOr<std::unique_ptr<chunk::ChunkReader>> reader = chunk::ChunkReader::Open(Chunks()[0]);
  ASSERT_TRUE(reader.ok()) << reader.status();
  proto::Payload payload;
  bool told = false;
  while (true) {
    absl::StatusOr<bool> more = (*reader)->Next(&payload);
    ASSERT_TRUE(more.ok()) << more.status();
    if (!*more) break;
    for (const proto::Incident& incident : payload.block().incidents()) {
      told = told || (incident.kind() == proto::Incident::FREQUENCY && incident.count() == 101);
    }
  }
  EXPECT_TRUE(told);
}

TEST_F(DaemonTest, ASecondOneKeepsAway) {
  START_OR_SKIP();
  // The same state directory.
  EXPECT_EQ(ExitOf(Spawn({"--state-dir", state_, "--socket", folder_ + "/other"})), 1);
  EXPECT_THAT(Log(), HasSubstr(absl::StrCat("another xenprofd (pid ", pid_, ") has the state directory")));
  // The same socket.
  EXPECT_EQ(ExitOf(Spawn({"--state-dir", folder_ + "/other-state", "--socket", socket_})), 1);
  EXPECT_THAT(Log(), HasSubstr("another xenprofd answers there"));
  EXPECT_TRUE(Ask(StatusRequest()).ok());
  EXPECT_EQ(Kill(SIGINT), 0);
}

TEST_F(DaemonTest, ChunksTurnOverAndTheOldestGo) {
  START_OR_SKIP("rotate_seconds = 5\nrotate_mib = 1\nmax_mib = 2\n");
  // The first turns over after 5 s, the second would after 10; the sealer is in no hurry.
  absl::SleepFor(absl::Milliseconds(7000));
  for (int i = 0; i < 100 && Chunks().empty(); ++i) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(Chunks().size(), 1u);
  EXPECT_EQ(Partials(), 1u);
  EXPECT_EQ(Kill(SIGTERM), 0);
  const std::vector<std::string> paths = Chunks();
  ASSERT_EQ(paths.size(), 2u);
  const chunk::VerifyReport first = Good(paths[0]), second = Good(paths[1]);
  EXPECT_EQ(first.end_ns, second.start_ns) << "no time between two chunks";
}

TEST_F(DaemonTest, TooLittleFreeSpacePausesWriting) {
  // No file system has that much.
  START_OR_SKIP("min_free_mib = 16000000\n");
  bool writing = true;
  proto::StatusResponse status;
  for (int i = 0; i < 40 && writing; ++i) {
    absl::SleepFor(absl::Milliseconds(100));
    status = Ask(StatusRequest())->status_response();
    writing = status.writing();
  }
  EXPECT_FALSE(writing);
  std::string notes;
  for (const proto::Note& note : status.notes()) notes += note.text();
  EXPECT_THAT(notes, HasSubstr("too little free space"));
  ControlEnvelope request;
  request.mutable_snapshot_request()->set_past_ns(1);
  EXPECT_THAT(Ask(request)->error().text(), HasSubstr("nothing is being written"));
  const uint64_t samples = status.samples();
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_GT(Ask(StatusRequest())->status_response().samples(), samples) << "collecting goes on";
  EXPECT_EQ(Kill(SIGTERM), 0);
}

TEST_F(DaemonTest, WrongUsage) {
  EXPECT_EQ(ExitOf(Spawn({"--no-such-option"})), 2);
  EXPECT_EQ(ExitOf(Spawn({"--frequency", "0"})), 2);
  EXPECT_EQ(ExitOf(Spawn({"--event", "r01c4"})), 2);
  EXPECT_EQ(ExitOf(Spawn({"--config", folder_ + "/none.toml"})), 2);
  EXPECT_THAT(Log(), HasSubstr("none.toml: No such file"));
  std::ofstream(folder_ + "/bad.toml") << "[collect]\nfrequenzy_hz = 97\n";
  EXPECT_EQ(ExitOf(Spawn({"--config", folder_ + "/bad.toml"})), 2);
  EXPECT_THAT(Log(), HasSubstr("bad.toml:2: unknown key: collect.frequenzy_hz"));
  std::ofstream(folder_ + "/file") << "";
  EXPECT_EQ(ExitOf(Spawn({"--state-dir", folder_ + "/file/state", "--socket", socket_})), 1);
  EXPECT_THAT(Log(), HasSubstr("cannot make the folder"));
}

}  // namespace
}  // namespace xenprof
