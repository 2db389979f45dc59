#include "xenprof/chunk/extract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "test_support.h"

namespace xenprof::chunk {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::unique_ptr<ChunkReader>> Open(const std::vector<std::string>& paths, bool salvage = false) {
  std::vector<std::unique_ptr<ChunkReader>> readers;
  for (const std::string& path : paths) {
    auto reader = ChunkReader::Open(path, {.salvage = salvage});
    EXPECT_TRUE(reader.ok()) << reader.status();
    readers.push_back(*std::move(reader));
  }
  return readers;
}

class ExtractTest : public testing::Test {
 protected:
  ExtractTest() {
    for (int i = 0; i < 3; ++i) {
      if (i > 0) host_.StartChunk();
      starts_.push_back(host_.now_ns());
      paths_.push_back(MakeChunk(folder_ / absl::StrCat(i, ".xenprof"), &host_, 3));
    }
  }
  std::vector<PlainSample> Expected(uint64_t start, uint64_t end) const {
    std::vector<PlainSample> samples;
    for (const PlainSample& sample : host_.samples()) {
      if (sample.time_ns >= start && sample.time_ns < end) samples.push_back(sample);
    }
    return samples;
  }
  TempFolder folder_;
  Host host_;
  std::vector<uint64_t> starts_;
  std::vector<std::string> paths_;
};

TEST_F(ExtractTest, ExactlyTheWindowAcrossChunks) {
  const std::vector<PlainSample>& all = host_.samples();
  // From the second half of a block of the first chunk into the third, bounded by samples: the first is in,
  // the last out.
  const uint64_t start = all[all.size() / 5].time_ns, end = all[all.size() * 4 / 5].time_ns;
  const auto report =
      Extract(Open({paths_[2], paths_[0], paths_[1], paths_[1]}), start, end, folder_ / "w.xenprof");
  ASSERT_TRUE(report.ok()) << report.status();
  const Contents contents = ReadAll(folder_ / "w.xenprof");
  EXPECT_EQ(contents.samples, Expected(start, end));
  EXPECT_EQ(contents.samples.front().time_ns, start);
  EXPECT_LT(contents.samples.back().time_ns, end);
  EXPECT_EQ(report->samples, contents.samples.size());
  EXPECT_EQ(report->start_ns, start);
  EXPECT_EQ(report->end_ns, end);
  EXPECT_EQ(contents.trailer.start_ns(), start);
  EXPECT_EQ(contents.trailer.end_ns(), end);
  EXPECT_EQ(contents.header.source(), proto::Header::EXTRACTED);
  EXPECT_EQ(contents.header.start_ns(), start);
  EXPECT_EQ(contents.header.host().hostname(), "host");
  EXPECT_EQ(contents.header.mode().kind(), proto::Mode::XEN_STACKS);
  EXPECT_EQ(contents.header.hypervisor().version(), "4.17.5");
  EXPECT_NE(contents.header.chunk_id(), ReadAll(paths_[0]).header.chunk_id());
  EXPECT_THAT(Verify(folder_ / "w.xenprof")->problems, IsEmpty());
}

TEST_F(ExtractTest, NamesAndLinesComeAlong) {
  ASSERT_TRUE(
      Extract(Open(paths_), starts_[1] + 500000000, starts_[2] + 500000000, folder_ / "w.xenprof").ok());
  const Contents contents = ReadAll(folder_ / "w.xenprof");
  const ChunkDecoder& decoder = *contents.decoder;
  int named = 0, with_lines = 0;
  for (uint32_t stack = 0; stack < decoder.tables().stacks.size(); ++stack) {
    decoder.ForEachFrame(stack, [&](uint32_t frame, bool is_leaf) {
      const uint32_t mapping = decoder.tables().frames[frame].mapping;
      const std::string& name = decoder.tables().mappings[mapping].name;
      const uint64_t address = decoder.LookupAddress(frame, is_leaf);
      if (name == "//anon nameless") {
        const ChunkDecoder::Function function = decoder.FunctionFor(mapping, address);
        EXPECT_FALSE(function);
        EXPECT_EQ(function.start, address / 64 * 64);
        EXPECT_EQ(function.size, 64u);
        EXPECT_EQ(decoder.SymbolProblem(mapping), "nothing has names here");
        return;
      }
      ++named;
      EXPECT_EQ(std::string(decoder.FunctionFor(mapping, address).name),
                absl::StrCat(name, "_", address / 64));
      EXPECT_EQ(decoder.SymbolSource(mapping), "made up");
      EXPECT_EQ(decoder.LinesFor(mapping, address).size(), address % 2 == 0 ? 2u : 0u);
      with_lines += !decoder.LinesFor(mapping, address).empty();
    });
  }
  EXPECT_GT(named, 100);
  EXPECT_GT(with_lines, 10);
  // Only what is used: fewer entries than the chunks had.
  EXPECT_LT(decoder.tables().stacks.size(), ReadAll(paths_[1]).decoder->tables().stacks.size() +
                                                ReadAll(paths_[2]).decoder->tables().stacks.size());
}

TEST_F(ExtractTest, OfAnExtract) {
  ASSERT_TRUE(Extract(Open(paths_), starts_[0], host_.now_ns(), folder_ / "w.xenprof").ok());
  EXPECT_EQ(ReadAll(folder_ / "w.xenprof").samples, host_.samples());
  ASSERT_TRUE(Extract(Open({folder_ / "w.xenprof"}), starts_[1], starts_[2], folder_ / "v.xenprof").ok());
  EXPECT_EQ(ReadAll(folder_ / "v.xenprof").samples, Expected(starts_[1], starts_[2]));
}

TEST_F(ExtractTest, Refusals) {
  const auto error = [&](std::vector<std::unique_ptr<ChunkReader>> inputs, uint64_t start, uint64_t end) {
    const absl::Status status = Extract(std::move(inputs), start, end, folder_ / "w.xenprof").status();
    EXPECT_FALSE(Exists(folder_ / "w.xenprof"));
    EXPECT_FALSE(Exists(folder_ / "w.xenprof.partial"));
    return std::string(status.message());
  };
  EXPECT_THAT(error(Open(paths_), 5, 10),
              HasSubstr(absl::StrCat("nothing was sampled between 5 and 10 ns; the chunks cover ", starts_[0],
                                     " to ", host_.now_ns(), " ns")));
  EXPECT_THAT(error(Open(paths_), 10, 10), HasSubstr("is empty"));
  EXPECT_THAT(error({}, 1, 10), HasSubstr("no chunk"));
  proto::Header header = MadeUpHeader();
  header.mutable_host()->set_boot_id("boot-2");
  auto writer = ChunkWriter::Create(folder_ / "other.xenprof", header);
  ASSERT_TRUE(writer.ok());
  host_.StartChunk();
  ASSERT_TRUE((*writer)->WriteBlock(host_.Advance(1000000000, 10000000), host_.tables(), 0).ok());
  ASSERT_TRUE((*writer)->Seal(host_.tables(), nullptr, proto::Trailer::STOPPED).ok());
  EXPECT_THAT(
      error(Open({paths_[0], folder_ / "other.xenprof"}), 0, UINT64_MAX),
      testing::AllOf(HasSubstr("boot boot-1"), HasSubstr("other.xenprof is of host host, boot boot-2"),
                     HasSubstr("cannot be compared")));
  // Damage behind what was already taken: nothing half made stays.
  std::string bytes = ReadFile(paths_[1]);
  bytes[bytes.size() * 2 / 3] ^= 1;
  WriteFile(folder_ / "broken.xenprof", bytes);
  EXPECT_THAT(error(Open({paths_[0], folder_ / "broken.xenprof"}), 0, UINT64_MAX),
              testing::ContainsRegex("broken.xenprof: offset [0-9]+: "));
  const auto salvaged =
      Extract(Open({paths_[0], folder_ / "broken.xenprof"}, true), 0, UINT64_MAX, folder_ / "w.xenprof");
  ASSERT_TRUE(salvaged.ok()) << salvaged.status();
  EXPECT_FALSE(salvaged->damage.empty());
  EXPECT_THAT(Verify(folder_ / "w.xenprof")->problems, IsEmpty());
}

TEST(Extract, IncidentsModesAndSampledTimesAreCut) {
  TempFolder folder;
  Host host(9, 1);
  auto writer = ChunkWriter::Create(folder / "a.xenprof", MadeUpHeader());
  ASSERT_TRUE(writer.ok());
  constexpr uint64_t kSecond = 1000000000;
  const uint64_t base = host.now_ns();
  using Kind = merge::Incident::Kind;
  const auto block = [&](std::vector<merge::Incident> incidents) {
    merge::Window window = host.Advance(kSecond, 10000000);
    window.incidents = std::move(incidents);
    ASSERT_TRUE((*writer)->WriteBlock(window, host.tables(), 0).ok());
  };
  block({{.kind = Kind::kFrequency, .start_ns = base, .count = 50},
         {.kind = Kind::kFrequency, .start_ns = base + 1, .count = 49},
         {.kind = Kind::kLost, .cpu = 0, .start_ns = base + 1, .count = 3}});
  proto::Mode mode;
  mode.set_kind(proto::Mode::DOM0_ONLY);
  (*writer)->SetMode(mode);
  block({});
  mode.set_kind(proto::Mode::XEN_LEAF_ONLY);
  (*writer)->SetMode(mode);
  block({{.kind = Kind::kGap, .cpu = 0, .start_ns = base + kSecond, .end_ns = base + 3 * kSecond},
         {.kind = Kind::kLost, .cpu = 0, .start_ns = base + 2 * kSecond + 5, .count = 4}});
  // Told later, of a time in the window.
  block({{.kind = Kind::kThrottled,
          .cpu = 0,
          .start_ns = base + 2 * kSecond + 7,
          .end_ns = base + 4 * kSecond}});
  ASSERT_TRUE((*writer)->Seal(host.tables(), nullptr, proto::Trailer::STOPPED).ok());

  const uint64_t start = base + kSecond + kSecond / 2, end = base + 2 * kSecond + kSecond / 4;
  ASSERT_TRUE(Extract(Open({folder / "a.xenprof"}), start, end, folder / "w.xenprof").ok());
  const Contents contents = ReadAll(folder / "w.xenprof");
  EXPECT_EQ(contents.header.mode().kind(), proto::Mode::DOM0_ONLY);
  EXPECT_EQ(contents.trailer.mode().kind(), proto::Mode::XEN_LEAF_ONLY);
  EXPECT_EQ(contents.trailer.lost(), 4u);
  std::vector<std::string> incidents;
  for (const proto::Incident& incident : contents.incidents) {
    incidents.push_back(absl::StrCat(incident.kind(), " ", incident.start_ns() - base, " ",
                                     incident.end_ns() - base, " ", incident.count()));
  }
  EXPECT_THAT(incidents, testing::UnorderedElementsAre(
                             absl::StrCat("7 ", start - base, " ", start - base, " 49"),
                             absl::StrCat("6 ", start - base, " ", end - base, " 0"),
                             absl::StrCat("1 ", 2 * kSecond + 5, " ", uint64_t{0} - base, " 4"),
                             absl::StrCat("2 ", 2 * kSecond + 7, " ", end - base, " 0")));
  auto reader = ChunkReader::Open(folder / "w.xenprof");
  proto::Payload payload;
  uint64_t sampled_ns = 0;
  while (*(*reader)->Next(&payload)) {
    for (const proto::CpuTime& time : payload.block().cpu_time()) sampled_ns += time.sampled_ns();
  }
  EXPECT_EQ(sampled_ns, end - start);
}

}  // namespace
}  // namespace xenprof::chunk
