#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "client/control_client.h"
#include "client/output_file.h"
#include "client/render.h"
#include "client/time_arguments.h"
#include "tests/unit/profile/chunk_maker.h"

namespace xenprof::client {
namespace {

using profile::TemporaryFolder;
using testing::HasSubstr;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

size_t FilesIn(const std::string& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

TEST(DurationTest, TakesSecondsAndUnits) {
  EXPECT_EQ(*ParseDuration("30"), absl::Seconds(30));
  EXPECT_EQ(*ParseDuration("1.5s"), absl::Milliseconds(1500));
  EXPECT_EQ(*ParseDuration("500ms"), absl::Milliseconds(500));
  EXPECT_EQ(*ParseDuration("5m"), absl::Minutes(5));
  EXPECT_EQ(*ParseDuration("1h30min"), absl::Minutes(90));
  EXPECT_EQ(*ParseDuration("2d"), absl::Hours(48));
  for (const char* bad : {"", "x", "-5", "5 s", "0", "1e9", "5parsecs", "s", "1..5", "99999999999d"}) {
    EXPECT_EQ(ParseDuration(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(TimeTest, TakesFullAndShortForms) {
  const absl::TimeZone zone = absl::FixedTimeZone(3600);
  const absl::Time now =
      absl::FromUnixSeconds(1'796'083'141);  // 2026-11-30 23:59:01 UTC, 00:59 of the next day here
  const auto parse = [&](absl::string_view text) { return ParseTime(text, now, zone); };
  EXPECT_EQ(*parse("2026-11-30T23:59:01Z"), now);
  EXPECT_EQ(*parse("2026-12-01T00:59:01+01:00"), now);
  EXPECT_EQ(*parse("2026-12-01 00:59:01"), now);
  EXPECT_EQ(*parse("2026-12-01 00:59:01.25"), now + absl::Milliseconds(250));
  EXPECT_EQ(*parse("00:59:01"), now);
  EXPECT_EQ(*parse("00:59"), now - absl::Seconds(1));
  EXPECT_EQ(*parse("@1796083141"), now);
  for (const char* bad : {"", "now", "25:00", "2026-13-01", "@", "@x", "@1e300"}) {
    EXPECT_EQ(parse(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(WindowTest, NamesTheOption) {
  EXPECT_THAT(ParseWindow({.from = "never"}).status().message(), HasSubstr("--from: 'never'"));
  EXPECT_THAT(ParseWindow({.last = "never"}).status().message(), HasSubstr("--last: 'never'"));
  EXPECT_THAT(ParseWindow({.from = "@200", .to = "@100"}).status().message(),
              HasSubstr("--from is not before --to"));
  const auto window = ParseWindow({.from = "@100", .to = "@100.5", .last = "1"});
  ASSERT_TRUE(window.ok());
  EXPECT_EQ(window->start_ns, 100'000'000'000);
  EXPECT_EQ(window->end_ns, 100'500'000'000);
  EXPECT_EQ(window->last_ns, 1'000'000'000);
}

TEST(FormatTest, ComesFromNameOrEnding) {
  EXPECT_EQ(*FormatByEnding("a.pb.gz"), Format::kPprof);
  EXPECT_EQ(*FormatByEnding("a.pprof"), Format::kPprof);
  EXPECT_EQ(*FormatByEnding("a/b.html"), Format::kHtml);
  EXPECT_EQ(*FormatByEnding("a.xenprof"), Format::kChunk);
  EXPECT_EQ(FormatByEnding("a.png").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(FormatByName("svg").status().message(), HasSubstr("text, folded, pprof and html"));
}

TEST(OutputFileTest, AppearsWholeOrNotAtAll) {
  TemporaryFolder folder;
  const std::string path = folder.File("out");
  std::ofstream(path) << "old";
  {
    auto file = OutputFile::Create(path);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Write("half").ok());
    EXPECT_EQ(ReadAll(path), "old");
  }
  EXPECT_EQ(ReadAll(path), "old");
  EXPECT_EQ(FilesIn(folder.path()), 1);
  auto file = OutputFile::Create(path);
  ASSERT_TRUE((*file)->Write("new").ok());
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ(ReadAll(path), "new");
  EXPECT_EQ(FilesIn(folder.path()), 1);
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  const mode_t mask = umask(022);
  umask(mask);
  EXPECT_EQ(info.st_mode & 0777, 0666 & ~mask);
}

TEST(OutputFileTest, ReplacesTheFileALinkLeadsTo) {
  TemporaryFolder folder;
  std::ofstream(folder.File("real")) << "old";
  std::filesystem::create_symlink(folder.File("real"), folder.File("link"));
  auto file = OutputFile::Create(folder.File("link"));
  ASSERT_TRUE((*file)->Write("new").ok());
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_TRUE(std::filesystem::is_symlink(folder.File("link")));
  EXPECT_EQ(ReadAll(folder.File("real")), "new");
}

TEST(OutputFileTest, SaysWhyAFileCannotBeWritten) {
  EXPECT_THAT(OutputFile::Create("/nonexistent/x.html").status().message(),
              HasSubstr("/nonexistent/x.html: No such file or directory"));
  EXPECT_THAT(OutputFile::Create("/tmp").status().message(), HasSubstr("/tmp: Is a directory"));
  auto full = OutputFile::Create("/dev/full");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_THAT((*full)->Write("x").message(), HasSubstr("/dev/full: No space left on device"));
}

// A daemon of a few answers at the other end of a socket.
class ControlClientTest : public testing::Test {
 protected:
  ControlClientTest() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    client_ = std::make_unique<ControlClient>(UniqueFd(fds[0]), "daemon");
    server_ = UniqueFd(fds[1]);
  }
  proto::ControlEnvelope ReadRequest() {
    proto::ControlEnvelope request;
    auto frame = ReadFrame(server_.get(), absl::Seconds(5));
    EXPECT_TRUE(frame.ok()) << frame.status();
    if (frame.ok()) {
      EXPECT_TRUE(request.ParseFromString(frame->bytes));
    }
    return request;
  }
  void Answer(uint64_t id, proto::ControlEnvelope answer, bool end,
              const std::vector<int>& descriptors = {}) {
    answer.set_version(1);
    answer.set_id(id);
    answer.set_end(end);
    EXPECT_TRUE(WriteFrame(server_.get(), answer.SerializeAsString(), descriptors, absl::Seconds(5)).ok());
  }

  std::unique_ptr<ControlClient> client_;
  UniqueFd server_;
};

TEST_F(ControlClientTest, AsksForStatus) {
  std::thread daemon([&] {
    const proto::ControlEnvelope request = ReadRequest();
    EXPECT_TRUE(request.has_status_request());
    EXPECT_EQ(request.version(), 1);
    proto::ControlEnvelope answer;
    answer.mutable_status_response()->set_samples(42);
    Answer(request.id(), answer, true);
  });
  const auto status = client_->Status();
  daemon.join();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->samples(), 42);
}

TEST_F(ControlClientTest, TakesChunksFromSeveralMessages) {
  TemporaryFolder folder;
  const std::string path = profile::WriteXenHostChunk(folder.File("a.xenprof"));
  std::thread daemon([&] {
    const proto::ControlEnvelope request = ReadRequest();
    EXPECT_EQ(request.snapshot_request().future_ns(), 2'000'000'000);
    EXPECT_EQ(request.snapshot_request().past_ns(), 1'000'000'000);
    EXPECT_FALSE(request.snapshot_request().without_progress());
    proto::ControlEnvelope progress;
    progress.mutable_snapshot_progress()->set_samples(7);
    Answer(request.id(), progress, false);
    for (const bool end : {false, true}) {
      const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
      proto::ControlEnvelope answer;
      answer.mutable_snapshot_response()->set_start_ns(5);
      answer.mutable_snapshot_response()->set_end_ns(9);
      answer.mutable_snapshot_response()->add_chunks(end ? "second" : "first");
      Answer(request.id(), answer, end, {file.get()});
    }
  });
  uint64_t told = 0;
  auto snapshot =
      client_->TakeSnapshot(absl::Seconds(2), absl::Seconds(1),
                            [&](const proto::SnapshotProgress& progress) { told = progress.samples(); });
  daemon.join();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_EQ(told, 7);
  EXPECT_EQ(snapshot->start_ns, 5);
  EXPECT_EQ(snapshot->end_ns, 9);
  ASSERT_EQ(snapshot->chunks.size(), 2);
  EXPECT_EQ(snapshot->chunks[1].path, "second");
  const auto profile = profile::BuildProfile(std::move(snapshot->chunks), {});
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->totals.samples, profile::kXenHostSamples);  // one chunk, sent twice
}

TEST_F(ControlClientTest, PassesOnTheDaemonsErrors) {
  std::thread daemon([&] {
    const proto::ControlEnvelope request = ReadRequest();
    EXPECT_TRUE(request.snapshot_request().without_progress());
    proto::ControlEnvelope answer;
    answer.mutable_error()->set_code(proto::Error::BUSY);
    answer.mutable_error()->set_text("four snapshots are being taken already");
    Answer(request.id(), answer, true);
  });
  const auto snapshot = client_->TakeSnapshot(absl::Seconds(1), absl::ZeroDuration(), {});
  daemon.join();
  EXPECT_EQ(snapshot.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(snapshot.status().message(), HasSubstr("xenprofd: four snapshots"));
}

TEST_F(ControlClientTest, RefusesNonsense) {
  const auto ask = [&](const std::function<void(uint64_t)>& answer) {
    std::thread daemon([&] { answer(ReadRequest().id()); });
    const absl::Status status = client_->Status().status();
    daemon.join();
    return status;
  };
  EXPECT_THAT(ask([&](uint64_t id) {
                proto::ControlEnvelope other;
                other.mutable_status_response();
                Answer(id + 5, other, true);
              }).message(),
              HasSubstr("an answer to request 6 instead of 1"));
  EXPECT_THAT(
      ask([&](uint64_t) { (void)WriteFrame(server_.get(), "\xff\xff", {}, absl::Seconds(1)); }).message(),
      HasSubstr("is no message of xenprofd"));
  EXPECT_THAT(ask([&](uint64_t id) {
                proto::ControlEnvelope newer;
                newer.set_version(2);
                newer.set_id(id);
                newer.mutable_status_response();
                (void)WriteFrame(server_.get(), newer.SerializeAsString(), {}, absl::Seconds(1));
              }).message(),
              HasSubstr("speaks version 2"));
  EXPECT_THAT(ask([&](uint64_t) { server_ = UniqueFd(); }).message(), HasSubstr("ended the connection"));
}

TEST_F(ControlClientTest, CountsDescriptors) {
  std::thread daemon([&] {
    const proto::ControlEnvelope request = ReadRequest();
    proto::ControlEnvelope answer;
    answer.mutable_snapshot_response()->add_chunks("promised");
    Answer(request.id(), answer, true);
  });
  const auto snapshot = client_->TakeSnapshot(absl::Seconds(1), absl::ZeroDuration(), {});
  daemon.join();
  EXPECT_THAT(snapshot.status().message(), HasSubstr("1 chunks were announced, 0 descriptors came"));
}

TEST(ConnectTest, NamesTheCommandThatStartsTheDaemon) {
  TemporaryFolder folder;
  const auto none = ControlClient::Connect(folder.File("control.sock"));
  EXPECT_EQ(none.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(none.status().message(), HasSubstr("systemctl start xenprofd"));
  EXPECT_EQ(ControlClient::Connect(std::string(200, 'x')).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace xenprof::client
