#include "xenprof/chunk/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "test_support.h"
#include "xenprof/chunk/envelope.h"
#include "xenprof/chunk/partial_file.h"

namespace xenprof::chunk {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ChunkFileName, SaysTheTimeAndSortsByIt) {
  const absl::Time time = absl::FromUnixMicros(1796083141123456);
  EXPECT_EQ(ChunkFileName(time, 0xbeef), "2026-11-30T23-59-01.123456Z-0000beef.xenprof");
  absl::Time parsed;
  ASSERT_TRUE(ParseChunkFileName(ChunkFileName(time + absl::Nanoseconds(999), 7), &parsed));
  EXPECT_EQ(parsed, time);
  EXPECT_LT(ChunkFileName(time, 9), ChunkFileName(time + absl::Microseconds(1), 0));
  for (const char* other : {"a.xenprof", ".xenprof", "2026-12-01T00-39-01.123456Z-0000beeg.xenprof",
                            "2026-12-01T00-39-01.123456Z-0000beef.xenprof.partial",
                            "2026-13-01T00-39-01.123456Z-0000beef.xenprof", "x-0000beef.xenprof"}) {
    EXPECT_FALSE(ParseChunkFileName(other, &parsed)) << other;
  }
}

std::string Name(int minute) {
  return ChunkFileName(absl::FromUnixSeconds(1796083200 + minute * 60), static_cast<uint32_t>(minute));
}

TEST(ListChunks, SealedOnesByTime) {
  TempFolder folder;
  for (const int minute : {5, 1, 3}) WriteFile(folder / Name(minute), "12345");
  WriteFile(folder / (Name(7) + ".partial"), "x");
  WriteFile(folder / "notes.txt", "x");
  ASSERT_EQ(mkdir((folder / "d.xenprof").c_str(), 0700), 0);
  ASSERT_EQ(symlink((folder / Name(1)).c_str(), (folder / "link.xenprof").c_str()), 0);
  absl::StatusOr<std::vector<StoredChunk>> chunks = ListChunks(folder.path());
  ASSERT_TRUE(chunks.ok());
  ASSERT_EQ(chunks->size(), 3u);
  EXPECT_EQ((*chunks)[0].path, folder / Name(1));
  EXPECT_EQ((*chunks)[2].path, folder / Name(5));
  EXPECT_EQ((*chunks)[0].bytes, 5u);
  EXPECT_EQ((*chunks)[0].start, absl::FromUnixSeconds(1796083260));
  EXPECT_EQ(ListChunks(folder / "missing").status().code(), absl::StatusCode::kNotFound);
}

class Retention : public testing::Test {
 protected:
  Retention() {
    for (int minute = 0; minute < 5; ++minute) WriteFile(folder_ / Name(minute), std::string(100, 'x'));
    WriteFile(folder_ / (Name(5) + ".partial"), std::string(50, 'x'));
    WriteFile(folder_ / "kept.xenprof", std::string(1000, 'x'));
  }
  absl::StatusOr<RetentionReport> Enforce(const RetentionLimits& limits, uint64_t free = 1000) {
    return EnforceRetention(folder_.path(), limits, absl::FromUnixSeconds(1796083200 + 600),
                            [this, free](const std::string& folder) {
                              EXPECT_EQ(folder, folder_.path());
                              // Each chunk removed gives its room back.
                              uint64_t chunks = 0;
                              for (int minute = 0; minute < 5; ++minute)
                                chunks += Exists(folder_ / Name(minute));
                              return free + (5 - chunks) * 100;
                            });
  }
  TempFolder folder_;
};

TEST_F(Retention, NothingToDo) {
  const auto report = Enforce({});
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(report->removed, IsEmpty());
  EXPECT_EQ(report->bytes_kept, 550u);
  EXPECT_EQ(report->free_bytes, 1000u);
}

TEST_F(Retention, ByBytes) {
  const auto report = Enforce({.max_bytes = 350});
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(report->removed, ElementsAre(folder_ / Name(0), folder_ / Name(1)));
  EXPECT_EQ(report->bytes_kept, 350u);
  EXPECT_FALSE(Exists(folder_ / Name(0)));
  EXPECT_TRUE(Exists(folder_ / Name(2)));
  EXPECT_THAT(Enforce({.max_bytes = 350})->removed, IsEmpty());
}

TEST_F(Retention, ByAge) {
  EXPECT_THAT(Enforce({.max_age = absl::Minutes(8)})->removed,
              ElementsAre(folder_ / Name(0), folder_ / Name(1)));
}

TEST_F(Retention, ByFreeSpace) {
  const auto report = Enforce({.min_free_bytes = 1150});
  EXPECT_THAT(report->removed, ElementsAre(folder_ / Name(0), folder_ / Name(1)));
  EXPECT_EQ(report->free_bytes, 1200u);
  EXPECT_FALSE(report->below_floor);
}

TEST_F(Retention, NeverThePartialOneNorWhatIsNotItsOwn) {
  const auto report = Enforce({.max_bytes = 1, .min_free_bytes = 100000});
  EXPECT_EQ(report->removed.size(), 5u);
  EXPECT_TRUE(report->below_floor);
  EXPECT_EQ(report->bytes_kept, 50u);
  EXPECT_TRUE(Exists(folder_ / (Name(5) + ".partial")));
  EXPECT_TRUE(Exists(folder_ / "kept.xenprof"));
}

TEST_F(Retention, FreeSpaceOfARealFileSystem) {
  EXPECT_GT(*FreeBytesOf("/"), 0u);
  EXPECT_FALSE(FreeBytesOf("/no/such/folder").ok());
}

// A chunk that was being written when its writer died.
class Recovery : public testing::Test {
 protected:
  Recovery() : host_(4, 2), path_(folder_ / Name(0)), partial_(path_ + ".partial") {
    auto writer = ChunkWriter::Create(path_, MadeUpHeader(), {.sync = false});
    EXPECT_TRUE(writer.ok());
    ends_.push_back((*writer)->bytes());
    samples_before_.push_back(0);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(
          (*writer)->WriteBlock(host_.Advance(200000000, 70000000), host_.tables(), 5, host_.domains()).ok());
      ends_.push_back((*writer)->bytes());
      samples_before_.push_back(host_.samples().size());
    }
    bytes_ = ReadFile(partial_);
  }
  absl::StatusOr<RecoveryReport> RecoverAs(const std::string& bytes, const std::string& boot_id = "boot-1") {
    unlink(path_.c_str());
    WriteFile(partial_, bytes);
    return Recover(folder_.path(), &names_, boot_id);
  }

  TempFolder folder_;
  Host host_;
  std::string path_, partial_, bytes_;
  std::vector<uint64_t> ends_;            // of the header and of each block
  std::vector<uint64_t> samples_before_;  // up to there
  MadeUpNames names_;
};

TEST_F(Recovery, OfTheWholeFile) {
  const auto report = RecoverAs(bytes_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->sealed, ElementsAre(path_));
  EXPECT_THAT(report->messages, IsEmpty());
  EXPECT_FALSE(Exists(partial_));
  const Contents contents = ReadAll(path_);
  EXPECT_EQ(contents.samples, host_.samples());
  EXPECT_EQ(contents.trailer.end(), proto::Trailer::RECOVERED);
  EXPECT_EQ(contents.trailer.realtime_offset_ns(), 5);
  EXPECT_EQ(std::string(contents.decoder->FunctionFor(3, 0x1000).name), "/usr/bin/prog_64");
  EXPECT_THAT(Verify(path_)->problems, IsEmpty());
}

TEST_F(Recovery, AtEveryByte) {
  for (size_t size = 0; size <= bytes_.size(); ++size) {
    size_t whole = 0;  // blocks
    while (whole + 1 < ends_.size() && ends_[whole + 1] <= size) ++whole;
    const auto report = RecoverAs(bytes_.substr(0, size));
    ASSERT_TRUE(report.ok());
    ASSERT_FALSE(Exists(partial_)) << size;
    if (whole == 0) {
      ASSERT_THAT(report->discarded, ElementsAre(partial_));
      ASSERT_THAT(report->messages.back(), HasSubstr("removed: it has no whole block"));
      ASSERT_FALSE(Exists(path_));
      continue;
    }
    ASSERT_THAT(report->sealed, ElementsAre(path_));
    ASSERT_EQ(report->messages.size(), size == ends_[whole] ? 0u : 2u);
    if (size != ends_[whole]) {
      ASSERT_THAT(report->messages[0], HasSubstr(absl::StrCat("offset ", ends_[whole], ": truncated")));
      ASSERT_THAT(report->messages[1], HasSubstr(absl::StrCat("cut ", size - ends_[whole], " bytes")));
    }
    ASSERT_EQ(Verify(path_)->problems.size(), 0u) << size;
    ASSERT_EQ(Verify(path_)->samples, samples_before_[whole]);
  }
}

TEST_F(Recovery, OfGarbageAtTheEnd) {
  for (const std::string& garbage : {std::string(5000, '\0'), std::string(300, '\xff'), std::string("abc")}) {
    const auto report = RecoverAs(bytes_ + garbage);
    ASSERT_TRUE(report.ok());
    ASSERT_THAT(report->sealed, ElementsAre(path_));
    EXPECT_EQ(ReadAll(path_).samples, host_.samples());
    EXPECT_THAT(Verify(path_)->problems, IsEmpty());
  }
}

TEST_F(Recovery, OfNothingButGarbage) {
  EXPECT_THAT(RecoverAs(std::string(1000, 'x'))->discarded, ElementsAre(partial_));
  EXPECT_FALSE(Exists(partial_));
}

TEST_F(Recovery, OfAFileThatOnlyLacksItsName) {
  RecoverAs(bytes_).IgnoreError();
  const std::string sealed = ReadFile(path_);
  const auto report = RecoverAs(sealed);
  EXPECT_THAT(report->sealed, ElementsAre(path_));
  EXPECT_EQ(ReadFile(path_), sealed);
  // Cut within symbols or trailer: those are made again.
  for (size_t size = ends_.back() + 1; size < sealed.size(); size += 7) {
    ASSERT_THAT(RecoverAs(sealed.substr(0, size))->sealed, ElementsAre(path_));
    ASSERT_EQ(ReadFile(path_), sealed);
  }
}

TEST_F(Recovery, AfterAnotherBootOnlyByBuildId) {
  ASSERT_TRUE(RecoverAs(bytes_, "boot-2").ok());
  const Contents contents = ReadAll(path_);
  const ChunkDecoder& decoder = *contents.decoder;
  EXPECT_FALSE(decoder.FunctionsOf(1).empty());  // Xen, by its build id
  EXPECT_FALSE(decoder.FunctionsOf(3).empty());
  EXPECT_TRUE(decoder.FunctionsOf(2).empty());
  EXPECT_THAT(std::string(decoder.SymbolProblem(2)), HasSubstr("another boot"));
}

TEST_F(Recovery, LeavesAloneWhatIsNotItsOwn) {
  // Written by a newer version.
  proto::Payload payload;
  payload.mutable_header()->set_magic("xenprof");
  payload.mutable_header()->set_format_version(kFormatVersion + 1);
  EnvelopeEncoder encoder;
  const std::string newer(*encoder.Encode({payload.SerializeAsString(), {}}, {}, 3));
  auto report = RecoverAs(newer);
  EXPECT_THAT(report->messages, ElementsAre(HasSubstr("left alone: ")));
  EXPECT_TRUE(Exists(partial_));
  // Being written.
  unlink(partial_.c_str());
  auto file = PartialFile::Create(path_);
  ASSERT_TRUE(file.ok());
  report = Recover(folder_.path(), &names_, "boot-1");
  EXPECT_THAT(report->messages, ElementsAre(HasSubstr("still being written by another process")));
  EXPECT_TRUE(Exists(partial_));
  // A sealed one of that name is there already.
  file->reset();
  WriteFile(path_, "sealed");
  WriteFile(partial_, bytes_);
  report = Recover(folder_.path(), &names_, "boot-1");
  EXPECT_THAT(report->messages, ElementsAre(HasSubstr("cannot put in place: File exists")));
  EXPECT_EQ(ReadFile(path_), "sealed");
  EXPECT_EQ(ReadFile(partial_), bytes_);
}

TEST_F(Recovery, SweepsAndGoesOn) {
  WriteFile(folder_ / "left.tmp", "x");
  WriteFile(folder_ / "0.xenprof.partial", "garbage");
  const auto report = RecoverAs(bytes_);
  EXPECT_THAT(report->discarded, ElementsAre(folder_ / "0.xenprof.partial", folder_ / "left.tmp"));
  EXPECT_THAT(report->sealed, ElementsAre(path_));
  EXPECT_FALSE(Recover(folder_ / "missing", nullptr).ok());
}

}  // namespace
}  // namespace xenprof::chunk
