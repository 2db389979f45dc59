// Captures of perf record, whole and damaged.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lzma.h>

#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/unit/perf/perf_data_builder.h"
#include "xenprof/perf/perf_data.h"

namespace xenprof::perf {
namespace {

using ::testing::IsEmpty;

std::string DataPath(const std::string& name) { return absl::StrCat(XENPROF_TEST_DATA, "/perf/", name); }

struct Counts {
  std::map<std::string, uint64_t> records;  // by type
  uint64_t bad = 0;
  uint64_t chain_entries = 0;
  bool failed = false;
};

// Reads and decodes everything there is.
Counts Count(PerfDataFile& file) {
  Counts counts;
  DataRecord record;
  while (true) {
    auto got = file.Next(&record);
    if (!got.ok()) counts.failed = true;
    if (!got.ok() || !*got) return counts;
    ++counts.records[RecordTypeName(record.type)];
    if (record.event == nullptr) {
      if (record.type < kFirstUserRecordType) ++counts.bad;
      continue;
    }
    if (record.type == kRecordSample) {
      Sample sample;
      if (!DecodeSample(record.bytes, record.event->layout, &sample).ok()) {
        ++counts.bad;
        continue;
      }
      counts.chain_entries += sample.chain.size();
      // Touches every entry, so that a sanitizer sees one outside.
      for (uint64_t entry : sample.chain) counts.chain_entries += entry == 0x5eed;
    } else {
      SidebandEvent event;
      if (!DecodeSideband(record.bytes, record.event->layout, &event).ok()) ++counts.bad;
    }
  }
}

TEST(CaptureTest, HypervisorStacks) {
  auto file = PerfDataFile::Open(DataPath("hv.data.xz"));
  ASSERT_TRUE(file.ok()) << file.status();
  const Counts counts = Count(**file);
  // As `perf script -D` counts them.
  EXPECT_EQ(counts.records.at("SAMPLE"), 2586u);
  EXPECT_EQ(counts.records.at("MMAP2"), 975u);
  EXPECT_EQ(counts.records.at("COMM"), 176u);
  EXPECT_EQ(counts.records.at("FORK"), 160u);
  EXPECT_EQ(counts.records.at("EXIT"), 94u);
  EXPECT_EQ(counts.records.at("KSYMBOL"), 8u);
  EXPECT_EQ(counts.bad, 0u);
  EXPECT_THAT((*file)->problems(), IsEmpty());
  EXPECT_FALSE((*file)->pipe_mode());
  EXPECT_FALSE((*file)->unfinished());

  const PerfDataFeatures& f = (*file)->features();
  EXPECT_EQ(f.hostname, "vm");
  EXPECT_EQ(f.os_release, "6.12.117");
  EXPECT_EQ(f.machine, "x86_64");
  EXPECT_EQ(f.cpus_online, 2u);
  EXPECT_EQ(f.first_sample_ns, 31557836050u);
  EXPECT_EQ(f.last_sample_ns, 47343434689u);
  // As `perf buildid-list` shows them.
  ASSERT_EQ(f.build_ids.size(), 20u);
  EXPECT_EQ(f.build_ids[0].file_name, "[kernel.kallsyms]");
  EXPECT_EQ(absl::BytesToHexString(f.build_ids[0].build_id), "8fa6d06d8e432cd331bde1a2f1dc28380bb543ed");
  ASSERT_EQ((*file)->events().size(), 2u);
  EXPECT_EQ((*file)->events()[0]->name, "cycles:HG");
  EXPECT_EQ((*file)->events()[0]->frequency_hz, 197u);
  EXPECT_TRUE((*file)->events()[0]->samples_addresses());
  EXPECT_FALSE((*file)->events()[0]->is_software_clock());
  EXPECT_FALSE((*file)->events()[1]->samples_addresses());
}

TEST(CaptureTest, StackCopies) {
  auto file = PerfDataFile::Open(DataPath("hv-dwarf.data.xz"));
  ASSERT_TRUE(file.ok()) << file.status();
  const Counts counts = Count(**file);
  EXPECT_EQ(counts.records.at("SAMPLE"), 707u);
  EXPECT_EQ(counts.bad, 0u);
  EXPECT_THAT((*file)->problems(), IsEmpty());
}

TEST(CaptureTest, SoftwareClock) {
  auto file = PerfDataFile::Open(DataPath("swclock.data.xz"));
  ASSERT_TRUE(file.ok()) << file.status();
  const Counts counts = Count(**file);
  EXPECT_EQ(counts.records.at("SAMPLE"), 1005u);
  EXPECT_EQ(counts.bad, 0u);
  EXPECT_TRUE((*file)->events()[0]->is_software_clock());
}

std::vector<uint8_t> Unpacked(const std::string& name) {
  std::ifstream in(DataPath(name), std::ios::binary);
  const std::vector<uint8_t> packed((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::vector<uint8_t> out(size_t{1} << 20);
  uint64_t memory = UINT64_MAX;
  size_t in_at = 0, out_size = 0;
  EXPECT_EQ(lzma_stream_buffer_decode(&memory, 0, nullptr, packed.data(), &in_at, packed.size(), out.data(),
                                      &out_size, out.size()),
            LZMA_OK);
  out.resize(out_size);
  return out;
}

// Whatever is wrong with the file: an error or fewer records, never more than there are bytes for, never a
// crash.
void ExpectHarmless(const std::vector<uint8_t>& bytes, const std::string& what) {
  auto file = OpenBytes(bytes);
  if (!file.ok()) {
    EXPECT_FALSE(file.status().message().empty()) << what;
    return;
  }
  const Counts counts = Count(**file);
  uint64_t records = 0;
  for (const auto& [type, count] : counts.records) records += count;
  EXPECT_LE(records * sizeof(RecordHeader), bytes.size()) << what;
  EXPECT_FALSE(counts.failed) << what;
}

TEST(CaptureTest, BitFlips) {
  const std::vector<uint8_t> good = Unpacked("hv.data.xz");
  ASSERT_EQ(good.size(), 477152u);
  std::mt19937_64 random(1);  // the same every time
  for (int round = 0; round < 400; ++round) {
    std::vector<uint8_t> bytes = good;
    // The header is small and decides most: every other round hits it, or the features at the end.
    const size_t begin = round % 4 == 3 ? 468624 : 0;
    const size_t end = round % 4 == 1 ? 424 : bytes.size();
    const int flips = 1 + static_cast<int>(random() % 8);
    for (int i = 0; i < flips; ++i)
      bytes[begin + random() % (end - begin)] ^= static_cast<uint8_t>(1 << random() % 8);
    ExpectHarmless(bytes, absl::StrCat("round ", round));
  }
}

TEST(CaptureTest, Truncations) {
  const std::vector<uint8_t> good = Unpacked("hv.data.xz");
  std::mt19937_64 random(2);
  for (int round = 0; round < 200; ++round) {
    const size_t size = round < 60 ? static_cast<size_t>(round) * 8 : random() % good.size();
    ExpectHarmless({good.begin(), good.begin() + static_cast<long>(size)}, absl::StrCat("size ", size));
  }
}

// Whole words replaced by values that like to overflow.
TEST(CaptureTest, WildNumbers) {
  const std::vector<uint8_t> good = Unpacked("hv.data.xz");
  std::mt19937_64 random(3);
  const uint64_t wild[] = {0, 1, 8, 0xffff, 0x7fffffff, 0xffffffff, 1ull << 32, 1ull << 63, ~0ull, ~0ull - 7};
  for (int round = 0; round < 300; ++round) {
    std::vector<uint8_t> bytes = good;
    const size_t end = round % 2 == 0 ? 424 : bytes.size();
    const uint64_t value = wild[random() % std::size(wild)];
    std::memcpy(bytes.data() + random() % (end / 8 - 1) * 8, &value, 8);
    ExpectHarmless(bytes, absl::StrCat("round ", round));
  }
}

}  // namespace
}  // namespace xenprof::perf
