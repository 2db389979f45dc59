#include "xenprof/base/framing.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

namespace xenprof {
namespace {

using testing::HasSubstr;

struct Pair {
  Pair() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    a = UniqueFd(fds[0]);
    b = UniqueFd(fds[1]);
  }
  UniqueFd a, b;
};

size_t OpenDescriptors() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    count += entry.exists() ? 1 : 1;
  return count;
}

void SendRaw(int socket, const std::string& bytes) {
  ASSERT_EQ(send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

TEST(FramingTest, CarriesBytesOfEverySizeUpToTheCap) {
  Pair pair;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, kMaxFrameBytes}) {
    std::string sent(size, 'x');
    if (size > 0) sent.back() = 'y';
    // A megabyte does not fit into the socket: somebody has to read at the same time.
    std::thread writer([&] { EXPECT_TRUE(WriteFrame(pair.a.get(), sent, {}, absl::Seconds(10)).ok()); });
    const auto frame = ReadFrame(pair.b.get(), absl::Seconds(10));
    writer.join();
    ASSERT_TRUE(frame.ok()) << frame.status();
    EXPECT_EQ(frame->bytes, sent);
  }
  const absl::Status too_large =
      WriteFrame(pair.a.get(), std::string(kMaxFrameBytes + 1, 'x'), {}, absl::Seconds(1));
  EXPECT_EQ(too_large.code(), absl::StatusCode::kInvalidArgument);
}

TEST(FramingTest, ReadsNotAByteTooMany) {
  Pair pair;
  SendRaw(pair.a.get(), EncodeFrame("first") + EncodeFrame("second"));
  EXPECT_EQ(ReadFrame(pair.b.get(), absl::Seconds(1))->bytes, "first");
  EXPECT_EQ(ReadFrame(pair.b.get(), absl::Seconds(1))->bytes, "second");
}

TEST(FramingTest, PutsPiecesTogether) {
  Pair pair;
  std::thread writer([&] {
    for (const char c : EncodeFrame("in pieces")) {
      SendRaw(pair.a.get(), std::string(1, c));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const auto frame = ReadFrame(pair.b.get(), absl::Seconds(10));
  writer.join();
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(frame->bytes, "in pieces");
}

TEST(FramingTest, PassesDescriptorsWithTheirFrame) {
  Pair pair;
  int pipe_fds[2];
  ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
  UniqueFd read_end(pipe_fds[0]), write_end(pipe_fds[1]);
  ASSERT_TRUE(WriteFrame(pair.a.get(), "with", {write_end.get(), write_end.get()}, absl::Seconds(1)).ok());
  ASSERT_TRUE(WriteFrame(pair.a.get(), "without", {}, absl::Seconds(1)).ok());
  auto with = ReadFrame(pair.b.get(), absl::Seconds(1));
  ASSERT_TRUE(with.ok()) << with.status();
  ASSERT_EQ(with->descriptors.size(), 2);
  EXPECT_EQ(fcntl(with->descriptors[0].get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  ASSERT_EQ(write(with->descriptors[1].get(), "!", 1), 1);
  char c = 0;
  ASSERT_EQ(read(read_end.get(), &c, 1), 1);
  EXPECT_EQ(c, '!');
  EXPECT_TRUE(ReadFrame(pair.b.get(), absl::Seconds(1))->descriptors.empty());
}

TEST(FramingTest, PassesAsManyDescriptorsAsItSays) {
  Pair pair;
  std::vector<int> many(kMaxFrameDescriptors, STDIN_FILENO);
  ASSERT_TRUE(WriteFrame(pair.a.get(), "many", many, absl::Seconds(1)).ok());
  const size_t before = OpenDescriptors();
  {
    const auto frame = ReadFrame(pair.b.get(), absl::Seconds(1));
    ASSERT_TRUE(frame.ok()) << frame.status();
    EXPECT_EQ(frame->descriptors.size(), kMaxFrameDescriptors);
    EXPECT_EQ(OpenDescriptors(), before + kMaxFrameDescriptors);
  }
  EXPECT_EQ(OpenDescriptors(), before);
  many.push_back(STDIN_FILENO);
  EXPECT_EQ(WriteFrame(pair.a.get(), "", many, absl::Seconds(1)).code(), absl::StatusCode::kInvalidArgument);
}

TEST(FramingTest, ClosesUnwantedDescriptors) {
  Pair pair;
  ASSERT_TRUE(WriteFrame(pair.a.get(), "x", {STDIN_FILENO, STDIN_FILENO}, absl::Seconds(1)).ok());
  const size_t before = OpenDescriptors();
  const auto refused = ReadFrame(pair.b.get(), absl::Seconds(1), kMaxFrameBytes, /*max_descriptors=*/0);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(FramingTest, RefusesAHostileLength) {
  Pair pair;
  SendRaw(pair.a.get(), std::string("\xff\xff\xff\xff", 4) + "abc");
  const auto frame = ReadFrame(pair.b.get(), absl::Seconds(1));
  EXPECT_EQ(frame.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(frame.status().message(), HasSubstr("4294967295"));
}

TEST(FramingTest, TellsTheEndFromACut) {
  Pair at_boundary;
  at_boundary.a = UniqueFd();
  EXPECT_EQ(ReadFrame(at_boundary.b.get(), absl::Seconds(1)).status().code(), absl::StatusCode::kOutOfRange);
  for (const size_t length : {1, 3, 4, 8}) {
    Pair cut;
    SendRaw(cut.a.get(), EncodeFrame("abcdefgh").substr(0, length));
    cut.a = UniqueFd();
    EXPECT_EQ(ReadFrame(cut.b.get(), absl::Seconds(1)).status().code(), absl::StatusCode::kDataLoss)
        << length;
  }
}

TEST(FramingTest, EndsWhenThePeerIsSlow) {
  Pair pair;
  bool started = true;
  EXPECT_EQ(ReadFrame(pair.b.get(), absl::Milliseconds(20), kMaxFrameBytes, 0, &started).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(started);
  SendRaw(pair.a.get(), EncodeFrame("abcdefgh").substr(0, 6));
  EXPECT_EQ(ReadFrame(pair.b.get(), absl::Milliseconds(20), kMaxFrameBytes, 0, &started).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(started);
  // Nobody reads: the socket fills up.
  EXPECT_EQ(WriteFrame(pair.b.get(), std::string(kMaxFrameBytes, 'x'), {}, absl::Milliseconds(50)).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(FramingTest, WritingToAClosedSocketIsAnErrorNotASignal) {
  Pair pair;
  pair.b = UniqueFd();
  EXPECT_EQ(WriteFrame(pair.a.get(), "x", {}, absl::Seconds(1)).code(), absl::StatusCode::kUnavailable);
}

TEST(FrameBufferTest, GivesFramesFromAnyPieces) {
  const std::string stream = EncodeFrame("one") + EncodeFrame("") + EncodeFrame(std::string(5000, 'z'));
  for (const size_t piece : {1, 2, 3, 7, 100, 6000}) {
    FrameBuffer buffer;
    std::vector<std::string> frames;
    for (size_t at = 0; at < stream.size(); at += piece) {
      ASSERT_TRUE(buffer.Append(stream.substr(at, piece)).ok());
      while (auto frame = buffer.Next()) frames.push_back(*frame);
    }
    EXPECT_EQ(frames, (std::vector<std::string>{"one", "", std::string(5000, 'z')})) << piece;
    EXPECT_TRUE(buffer.empty());
  }
}

TEST(FrameBufferTest, RefusesAHostileLengthAlsoBehindAGoodFrame) {
  FrameBuffer buffer(100);
  EXPECT_FALSE(buffer.Append(std::string("\x65\0\0\0", 4)).ok());
  FrameBuffer second(100);
  ASSERT_TRUE(second.Append(EncodeFrame("good") + std::string("\x65\0\0\0", 4)).ok());
  EXPECT_EQ(second.Next(), "good");
  EXPECT_EQ(second.Next(), std::nullopt);
  EXPECT_FALSE(second.Append("x").ok());
}

}  // namespace
}  // namespace xenprof
