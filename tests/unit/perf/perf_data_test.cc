// perf.data files made byte by byte: both modes, events told apart, compression, and everything that may be
// wrong.
#include "xenprof/perf/perf_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lzma.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/unit/perf/perf_data_builder.h"

namespace xenprof::perf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kType = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
                           PERF_SAMPLE_CPU | PERF_SAMPLE_CALLCHAIN;

SampleFields WithId(uint64_t id, uint64_t time = 1000) {
  SampleFields f;
  f.identifier = f.id = id;
  f.time = time;
  return f;
}

std::vector<uint8_t> Comm(uint64_t sample_type, uint64_t id) {
  RecordBuilder b(PERF_RECORD_COMM, 0);
  b.U32(42).U32(42).PaddedText("worker");
  AddIdentity(b, sample_type, WithId(id));
  return b.Done();
}

void Append(std::vector<uint8_t>& to, const std::vector<uint8_t>& bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

FileSpec OneEvent(int samples) {
  FileSpec spec;
  spec.events = {MakeEvent(kType, {7})};
  for (int i = 0; i < samples; ++i) {
    Append(spec.data,
           BuildSample(kType, PERF_RECORD_MISC_KERNEL, WithId(7, 1000 + static_cast<uint64_t>(i))));
  }
  return spec;
}

std::vector<SeenRecord> ReadAllOk(const std::vector<uint8_t>& bytes,
                                  std::vector<std::string>* problems = nullptr) {
  auto file = OpenBytes(bytes);
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return {};
  auto seen = ReadAll(**file);
  EXPECT_TRUE(seen.ok()) << seen.status();
  if (problems != nullptr) *problems = (*file)->problems();
  return seen.ok() ? *seen : std::vector<SeenRecord>();
}

TEST(PerfDataTest, EventsAreToldApartByIdentifier) {
  // Two sampling events of different layouts and the dummy that carries sideband.
  const uint64_t other_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_PERIOD;
  FileSpec spec;
  spec.events = {MakeEvent(kType, {7, 8}, "cycles"), MakeEvent(other_type, {9, 10}, "instructions"),
                 MakeEvent(kType, {11}, "dummy:HG")};
  spec.events[2].attr.type = PERF_TYPE_SOFTWARE;
  spec.events[2].attr.config = PERF_COUNT_SW_DUMMY;
  spec.features[12] = EventDescription(spec.events);
  Append(spec.data, BuildSample(kType, PERF_RECORD_MISC_KERNEL, WithId(8)));
  Append(spec.data, BuildSample(other_type, PERF_RECORD_MISC_KERNEL, WithId(10)));
  Append(spec.data, Comm(kType, 11));
  Append(spec.data, Comm(kType, 0));                                           // made up by perf
  Append(spec.data, BuildSample(kType, PERF_RECORD_MISC_KERNEL, WithId(99)));  // of no event
  Append(spec.data, Comm(kType, 99));
  Append(spec.data, RecordBuilder(kRecordFinishedRound, 0).Done());
  for (const std::vector<uint8_t>& bytes : {FileMode(spec), PipeMode(spec)}) {
    auto file = OpenBytes(bytes);
    ASSERT_TRUE(file.ok()) << file.status();
    auto all = ReadAll(**file);
    ASSERT_TRUE(all.ok());
    // Pipe mode hands out its header records, too.
    std::vector<SeenRecord> seen;
    for (SeenRecord& record : *all) {
      if (record.bytes[0] != 64 && record.bytes[0] != 80) seen.push_back(std::move(record));
    }
    ASSERT_EQ(seen.size(), 7u);
    EXPECT_EQ(seen[0].event, "cycles");
    EXPECT_EQ(seen[1].event, "instructions");
    EXPECT_EQ(seen[2].event, "dummy:HG");
    EXPECT_EQ(seen[3].event, "cycles");
    EXPECT_EQ(seen[4].event, "");
    EXPECT_TRUE(seen[4].unknown_id);
    EXPECT_EQ(seen[5].event, "cycles");
    EXPECT_TRUE(seen[5].unknown_id);
    EXPECT_EQ(seen[6].event, "");
    EXPECT_FALSE(seen[6].unknown_id);
    EXPECT_THAT((*file)->problems(), IsEmpty());
    EXPECT_TRUE((*file)->events()[0]->samples_addresses());
    EXPECT_TRUE((*file)->events()[1]->samples_addresses());
    EXPECT_FALSE((*file)->events()[2]->samples_addresses());
  }
}

// Without IDENTIFIER an id lies behind ip, tid, time and addr of a sample, and before stream id and cpu at
// the end of any other record.
TEST(PerfDataTest, EventsAreToldApartById) {
  for (uint64_t extra : {uint64_t{0}, uint64_t{PERF_SAMPLE_ADDR}, uint64_t{PERF_SAMPLE_STREAM_ID},
                         uint64_t{PERF_SAMPLE_CPU | PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_TIME}}) {
    const uint64_t type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_ID | PERF_SAMPLE_PERIOD | extra;
    FileSpec spec;
    // What lies behind the id may differ.
    spec.events = {MakeEvent(type, {7}, "a"), MakeEvent(type | PERF_SAMPLE_CALLCHAIN, {8}, "b")};
    spec.features[12] = EventDescription(spec.events);
    Append(spec.data, BuildSample(type, 0, WithId(7)));
    Append(spec.data, BuildSample(type | PERF_SAMPLE_CALLCHAIN, 0, WithId(8)));
    Append(spec.data, Comm(type, 8));
    Append(spec.data, Comm(type, 7));
    const std::vector<SeenRecord> seen = ReadAllOk(FileMode(spec));
    ASSERT_EQ(seen.size(), 4u);
    EXPECT_EQ(seen[0].event, "a");
    EXPECT_EQ(seen[1].event, "b");
    EXPECT_EQ(seen[2].event, "b");
    EXPECT_EQ(seen[3].event, "a");
  }
}

TEST(PerfDataTest, AmbiguousEventsAreRefused) {
  FileSpec spec;
  const uint64_t no_id = PERF_SAMPLE_IP | PERF_SAMPLE_TIME;
  spec.events = {MakeEvent(no_id, {7}), MakeEvent(no_id, {8})};
  EXPECT_THAT(std::string(OpenBytes(FileMode(spec)).status().message()), HasSubstr("cannot be told from"));
  // Ids at different places.
  spec.events = {MakeEvent(no_id | PERF_SAMPLE_ID, {7}), MakeEvent(PERF_SAMPLE_IP | PERF_SAMPLE_ID, {8})};
  EXPECT_THAT(std::string(OpenBytes(FileMode(spec)).status().message()), HasSubstr("different places"));
  // In pipe mode found out while reading.
  auto file = OpenBytes(PipeMode(spec));
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(std::string(ReadAll(**file).status().message()), HasSubstr("different places"));
}

TEST(PerfDataTest, OneEventNeedsNoIds) {
  FileSpec spec;
  const uint64_t type = PERF_SAMPLE_IP | PERF_SAMPLE_TIME;
  spec.events = {MakeEvent(type, {})};
  Append(spec.data, BuildSample(type, 0, {}));
  const std::vector<SeenRecord> seen = ReadAllOk(FileMode(spec));
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].event, "cycles");
}

TEST(PerfDataTest, AttributesOfEveryVersion) {
  // PERF_ATTR_SIZE_VER0 to VER8, and one that does not exist yet.
  for (uint32_t size : {64, 72, 80, 96, 104, 112, 120, 128, 136, 200}) {
    EventSpec event = MakeEvent(kType, {7});
    event.attr.size = size;
    event.attr.exclude_kernel = 1;
    event.attr.use_clockid = 1;
    event.attr.clockid = 4;
    event.attr.sample_max_stack = 64;
    std::vector<uint8_t> attr(size);
    std::memcpy(attr.data(), &event.attr, std::min<size_t>(size, sizeof event.attr));
    BytesBuilder b;
    b.Text("PERFILE2").U64(16);
    b.Append(RecordBuilder(64, 0).Append(attr).U64(7).Done());
    b.Append(BuildSample(kType, 0, WithId(7)));
    auto file = OpenBytes(b.bytes());
    ASSERT_TRUE(file.ok());
    auto seen = ReadAll(**file);
    ASSERT_TRUE(seen.ok()) << seen.status();
    EXPECT_EQ(seen->back().event, "cycles");
    const PerfEvent& read = *(*file)->events()[0];
    EXPECT_EQ(read.frequency_hz, 997u);
    EXPECT_EQ(read.period, 0u);
    EXPECT_TRUE(read.exclude_kernel);
    EXPECT_THAT(read.ids, ElementsAre(7u));
    EXPECT_EQ(read.clock_id.value_or(-1), size >= 96 ? 4 : 0);
    EXPECT_EQ(read.max_stack, size >= 112 ? 64 : 0);
  }
}

TEST(PerfDataTest, EventNames) {
  PerfEvent event;
  event.type = PERF_TYPE_RAW;
  for (const auto& [name, plain] :
       std::vector<std::pair<std::string, std::string>>{{"r3c", "r3c"},
                                                        {"r3c:HG", "r3c"},
                                                        {"r3c:ppp", "r3c"},
                                                        {"r3c:x", "r3c:x"},
                                                        {":u", ":u"},
                                                        {"cpu/event=0x3c/u", "cpu/event=0x3c/u"}}) {
    event.name = name;
    EXPECT_EQ(event.plain_name(), plain);
  }
  event.type = PERF_TYPE_TRACEPOINT;
  event.name = "irq:u";
  EXPECT_EQ(event.plain_name(), "irq:u");
  event.type = PERF_TYPE_SOFTWARE;
  event.config = PERF_COUNT_SW_CPU_CLOCK;
  event.name = "cpu-clock/call-graph=fp/";
  EXPECT_EQ(event.plain_name(), "cpu-clock");
  EXPECT_TRUE(event.is_software_clock());
  event.type = PERF_TYPE_HARDWARE;
  event.config = uint64_t{10} << 32 | PERF_COUNT_HW_CPU_CYCLES;  // of one of several kinds of CPU
  event.name = "cpu_atom/cycles/P";
  EXPECT_EQ(event.plain_name(), "cycles");
  EXPECT_FALSE(event.is_software_clock());
}

TEST(PerfDataTest, Features) {
  FileSpec spec = OneEvent(1);
  spec.features[3] = HeaderString("dom0");
  spec.features[4] = HeaderString("6.12.117");
  spec.features[5] = HeaderString("6.1.176");
  spec.features[6] = HeaderString("x86_64");
  spec.features[7] = BytesBuilder().U32(16).U32(8).bytes();
  spec.features[8] = HeaderString("AMD EPYC");
  spec.features[11] =
      BytesBuilder().U32(2).Append(HeaderString("perf")).Append(HeaderString("record")).bytes();
  spec.features[12] = EventDescription({MakeEvent(kType, {7}, "cycles:HG")});
  spec.features[16] = {1, 2, 3};  // not looked at
  spec.features[21] = BytesBuilder().U64(1000).U64(2000).bytes();
  spec.features[27] = BytesBuilder().U32(1).U32(1).U32(1).U32(3).U32(528384).bytes();
  spec.features[29] = BytesBuilder().U32(1).U32(4).U64(1'790'000'000'000'000'000).U64(5000).bytes();
  spec.features[255] = {9};
  std::vector<uint8_t> ids = BuildIdRecord(1, ~0u, std::string(20, 'k'), "[kernel.kallsyms]");
  Append(ids, BuildIdRecord(2, ~0u, std::string(8, 'x'), "/usr/lib/libshort.so"));
  spec.features[2] = ids;
  for (bool pipe : {false, true}) {
    auto file = OpenBytes(pipe ? PipeMode(spec) : FileMode(spec));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->pipe_mode(), pipe);
    ASSERT_TRUE(ReadAll(**file).ok());
    (*file)->Rewind();
    ASSERT_TRUE(ReadAll(**file).ok());  // nothing is taken in twice
    EXPECT_THAT((*file)->problems(), IsEmpty());
    const PerfDataFeatures& f = (*file)->features();
    EXPECT_EQ(f.hostname, "dom0");
    EXPECT_EQ(f.os_release, "6.12.117");
    EXPECT_EQ(f.perf_version, "6.1.176");
    EXPECT_EQ(f.machine, "x86_64");
    EXPECT_EQ(f.cpus_available, 16u);
    EXPECT_EQ(f.cpus_online, 8u);
    EXPECT_EQ(f.cpu_description, "AMD EPYC");
    EXPECT_THAT(f.command_line, ElementsAre("perf", "record"));
    EXPECT_EQ(f.first_sample_ns, 1000u);
    EXPECT_EQ(f.last_sample_ns, 2000u);
    EXPECT_TRUE(f.compressed);
    ASSERT_TRUE(f.clock.has_value());
    EXPECT_EQ(f.clock->clock_id, 4);
    EXPECT_EQ(f.clock->wall_clock_ns, 1'790'000'000'000'000'000u);
    EXPECT_EQ(f.clock->clock_ns, 5000u);
    ASSERT_EQ(f.build_ids.size(), 2u);
    EXPECT_EQ(f.build_ids[0].build_id, std::string(20, 'k'));
    EXPECT_EQ(f.build_ids[0].mode, CpuMode::kKernel);
    EXPECT_EQ(f.build_ids[0].file_name, "[kernel.kallsyms]");
    EXPECT_EQ(f.build_ids[1].build_id, std::string(8, 'x'));
    EXPECT_EQ(f.build_ids[1].file_name, "/usr/lib/libshort.so");
    ASSERT_EQ((*file)->events().size(), 1u);
    EXPECT_EQ((*file)->events()[0]->name, "cycles:HG");
  }
}

// A feature that contradicts itself is told and costs nothing else.
TEST(PerfDataTest, BrokenFeaturesAreTold) {
  const std::map<uint32_t, std::vector<uint8_t>> broken = {{2, {1, 2, 3}},
                                                           {3, BytesBuilder().U32(1000).bytes()},
                                                           {7, {1}},
                                                           {11, BytesBuilder().U32(~0u).U32(0).bytes()},
                                                           {12, BytesBuilder().U32(1).U32(~0u).bytes()},
                                                           {21, BytesBuilder().U64(1).bytes()},
                                                           {29, BytesBuilder().U32(1).bytes()}};
  for (const auto& [feature, bytes] : broken) {
    FileSpec spec = OneEvent(3);
    spec.features[feature] = bytes;
    std::vector<std::string> problems;
    EXPECT_EQ(ReadAllOk(FileMode(spec), &problems).size(), 3u);
    ASSERT_EQ(problems.size(), 1u) << feature;
    EXPECT_THAT(problems[0], HasSubstr("f.data: offset "));
    EXPECT_THAT(problems[0], HasSubstr("feature "));
  }
}

TEST(PerfDataTest, EveryTruncation) {
  FileSpec spec = OneEvent(4);
  spec.features[3] = HeaderString("dom0");
  spec.features[12] = EventDescription(spec.events);
  const std::vector<uint8_t> whole = FileMode(spec);
  const size_t data_at = 104 + 8 + sizeof(perf_event_attr) + 16;
  const size_t sample_bytes = spec.data.size() / 4;
  for (size_t size = 0; size < whole.size(); ++size) {
    auto file = OpenBytes({whole.begin(), whole.begin() + static_cast<long>(size)});
    if (size < data_at) {
      ASSERT_FALSE(file.ok()) << size;
      EXPECT_THAT(std::string(file.status().message()), HasSubstr("f.data: offset "));
      continue;
    }
    ASSERT_TRUE(file.ok()) << size << file.status();
    auto seen = ReadAll(**file);
    ASSERT_TRUE(seen.ok());
    EXPECT_EQ(seen->size(), std::min<size_t>(4, (size - data_at) / sample_bytes)) << size;
    EXPECT_FALSE((*file)->problems().empty()) << size;
  }
}

TEST(PerfDataTest, EveryTruncationOfPipeMode) {
  const FileSpec spec = OneEvent(4);
  const std::vector<uint8_t> whole = PipeMode(spec);
  const size_t first_sample = whole.size() - spec.data.size();
  for (size_t size = 16; size < whole.size(); ++size) {
    auto file = OpenBytes({whole.begin(), whole.begin() + static_cast<long>(size)});
    ASSERT_TRUE(file.ok());
    auto seen = ReadAll(**file);
    ASSERT_TRUE(seen.ok());
    const size_t samples = size < first_sample ? 0 : (size - first_sample) / (spec.data.size() / 4);
    EXPECT_EQ(seen->size(), size < first_sample ? 0 : 1 + samples);
    const bool between_records =
        size == 16 || (size >= first_sample && (size - first_sample) % (spec.data.size() / 4) == 0);
    EXPECT_EQ((*file)->problems().empty(), between_records) << size;
  }
}

// perf record killed by SIGKILL: the data section's size is still 0, the features' bits are set but they do
// not exist.
TEST(PerfDataTest, UnfinishedFile) {
  FileSpec spec = OneEvent(5);
  std::vector<uint8_t> bytes = FileMode(spec);
  std::memset(bytes.data() + 48, 0, 8);  // data.size
  bytes[72] = 0xfc;
  auto file = OpenBytes(bytes);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->unfinished());
  auto seen = ReadAll(**file);
  ASSERT_TRUE(seen.ok());
  EXPECT_EQ(seen->size(), 5u);
  ASSERT_EQ((*file)->problems().size(), 1u);
  EXPECT_THAT((*file)->problems()[0], HasSubstr("did not end properly"));
}

TEST(PerfDataTest, WhatIsNoPerfDataIsRefused) {
  const std::vector<uint8_t> good = FileMode(OneEvent(1));
  const auto message = [](const std::vector<uint8_t>& bytes) {
    return std::string(OpenBytes(bytes).status().message());
  };
  const auto with_magic = [&](const char* magic) {
    std::vector<uint8_t> bytes = good;
    std::memcpy(bytes.data(), magic, 8);
    return bytes;
  };
  EXPECT_THAT(message({}), HasSubstr("f.data: offset 0: no perf.data file: only 0 bytes"));
  EXPECT_THAT(message(with_magic("2ELIFREP")), HasSubstr("other byte order"));
  EXPECT_THAT(message(with_magic("PERFFILE")), HasSubstr("version 1"));
  EXPECT_THAT(message(with_magic("\177ELF\2\1\1\0")), HasSubstr("begins with \"\\177ELF"));
}

TEST(PerfDataTest, HostileHeaders) {
  const std::vector<uint8_t> good = FileMode(OneEvent(1));
  const size_t attr_at = 104 + 8;
  struct Case {
    size_t offset;
    std::vector<uint64_t> values;
  };
  const Case cases[] = {
      {8, {0, 15, 71, 4097, ~0ull}},                                 // header size
      {16, {0, 79, 4097, ~0ull}},                                    // attr size
      {24, {good.size() + 1, ~0ull, ~0ull - 100}},                   // attrs offset
      {32, {0, 1, 1ull << 40, ~0ull}},                               // attrs size
      {40, {good.size() + 1, 1, ~0ull}},                             // data offset
      {attr_at + sizeof(perf_event_attr), {1ull << 40, ~0ull}},      // ids offset
      {attr_at + sizeof(perf_event_attr) + 8, {1ull << 40, ~0ull}},  // ids size
  };
  for (const Case& c : cases) {
    for (uint64_t value : c.values) {
      std::vector<uint8_t> bytes = good;
      std::memcpy(bytes.data() + c.offset, &value, 8);
      auto file = OpenBytes(bytes);
      ASSERT_FALSE(file.ok()) << c.offset << " " << value;
      EXPECT_THAT(std::string(file.status().message()), HasSubstr("f.data: offset "));
    }
  }
  // A data section that claims more than there is is read as far as it goes.
  for (uint64_t value : {good.size(), size_t{~0ull}}) {
    std::vector<uint8_t> bytes = good;
    std::memcpy(bytes.data() + 48, &value, 8);
    std::vector<std::string> problems;
    EXPECT_EQ(ReadAllOk(bytes, &problems).size(), 1u);
    EXPECT_THAT(problems, ElementsAre(HasSubstr("bytes before its data section does")));
  }
}

TEST(PerfDataTest, DamageEndsTheData) {
  FileSpec spec = OneEvent(3);
  const size_t sample_bytes = spec.data.size() / 3;
  const size_t data_at = 104 + 8 + sizeof(perf_event_attr) + 16;
  spec.data[sample_bytes + 6] = 4;  // the second one's size
  spec.data[sample_bytes + 7] = 0;
  std::vector<std::string> problems;
  EXPECT_EQ(ReadAllOk(FileMode(spec), &problems).size(), 1u);
  EXPECT_THAT(problems,
              ElementsAre(absl::StrCat("f.data: offset ", data_at + sample_bytes,
                                       ": SAMPLE record claims a size of 4, less than its header; the ",
                                       2 * sample_bytes, " bytes from there on are left out")));
}

TEST(PerfDataTest, TracePayloadsAreSkipped) {
  FileSpec spec = OneEvent(1);
  const std::vector<uint8_t> sample = spec.data;
  // AUXTRACE: u64 size, then as many bytes behind the record. These look like a record of size 0.
  Append(spec.data, RecordBuilder(71, 0).U64(3000000).U64(0).U64(0).U32(0).U32(0).U32(0).U32(0).Done());
  spec.data.resize(spec.data.size() + 3000000);
  Append(spec.data, sample);
  // TRACING_DATA: u32 size, rounded up to 8.
  Append(spec.data, RecordBuilder(66, 0).U32(13).U32(0).Done());
  spec.data.resize(spec.data.size() + 16);
  Append(spec.data, sample);
  std::vector<std::string> problems;
  EXPECT_EQ(ReadAllOk(FileMode(spec), &problems).size(), 5u);
  EXPECT_THAT(problems, IsEmpty());

  Append(spec.data, RecordBuilder(71, 0).U64(~0ull - 7).U64(0).U64(0).U32(0).U32(0).U32(0).U32(0).Done());
  EXPECT_EQ(ReadAllOk(FileMode(spec), &problems).size(), 6u);
  EXPECT_THAT(problems, ElementsAre(HasSubstr("bytes of trace data where 0 are left")));
}

// Records of all sizes over several windows, some no multiple of 8, so that what follows lies askew.
TEST(PerfDataTest, WindowsAndAlignment) {
  FileSpec spec = OneEvent(0);
  std::vector<std::vector<uint8_t>> records;
  for (size_t size = 8; size <= 65535; size += 1 + size / 7) {
    for (int i = 0; i < 3; ++i) {
      RecordBuilder b(PERF_RECORD_SWITCH, 0);
      for (size_t at = 8; at < size; ++at) b.Add(static_cast<uint8_t>(at + records.size()));
      records.push_back(b.Done());
      Append(spec.data, records.back());
    }
  }
  ASSERT_GT(spec.data.size(), size_t{1} << 20);
  auto file = OpenBytes(FileMode(spec));
  ASSERT_TRUE(file.ok());
  for (int pass = 0; pass < 2; ++pass) {
    DataRecord record;
    size_t i = 0;
    while (true) {
      auto got = (*file)->Next(&record);
      ASSERT_TRUE(got.ok());
      if (!*got) break;
      ASSERT_LT(i, records.size());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(record.bytes.data()) % 8, 0u);
      ASSERT_EQ(std::vector<uint8_t>(record.bytes.begin(), record.bytes.end()), records[i]) << i;
      ++i;
    }
    EXPECT_EQ(i, records.size());
    (*file)->Rewind();
  }
  EXPECT_THAT((*file)->problems(), IsEmpty());
}

// One zstd stream cut into COMPRESSED records, flushed after each, as perf record -z writes it.
class Compressor {
 public:
  Compressor() : context_(ZSTD_createCCtx()) {}
  ~Compressor() { ZSTD_freeCCtx(context_); }
  std::vector<uint8_t> Record(absl::Span<const uint8_t> bytes, bool second_form) {
    std::vector<uint8_t> out(ZSTD_compressBound(bytes.size()) + 1024);
    ZSTD_inBuffer in = {bytes.data(), bytes.size(), 0};
    ZSTD_outBuffer buffer = {out.data(), out.size(), 0};
    EXPECT_EQ(ZSTD_compressStream2(context_, &buffer, &in, ZSTD_e_flush), 0u);
    out.resize(buffer.pos);
    RecordBuilder b(second_form ? 83 : 81, 0);
    if (second_form) b.U64(out.size());
    b.Append(out);
    if (second_form) b.PadTo(8);
    return b.Done();
  }

 private:
  ZSTD_CCtx* context_;
};

TEST(PerfDataTest, CompressedRecords) {
  const FileSpec plain = OneEvent(3000);
  const std::vector<SeenRecord> expected = ReadAllOk(FileMode(plain));
  ASSERT_EQ(expected.size(), 3000u);
  for (bool second_form : {false, true}) {
    // Pieces that end within a record, and one bigger than the buffer.
    for (size_t piece : {100, 4096, 300000}) {
      FileSpec spec = plain;
      spec.data.clear();
      Compressor compressor;
      for (size_t at = 0; at < plain.data.size(); at += piece) {
        Append(spec.data, compressor.Record(absl::MakeConstSpan(plain.data).subspan(at, piece), second_form));
      }
      std::vector<std::string> problems;
      const std::vector<SeenRecord> seen = ReadAllOk(FileMode(spec), &problems);
      EXPECT_THAT(problems, IsEmpty());
      ASSERT_EQ(seen.size(), expected.size());
      for (size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i].bytes, expected[i].bytes) << i;
    }
  }
}

TEST(PerfDataTest, BrokenCompressedRecords) {
  const FileSpec plain = OneEvent(200);
  FileSpec spec = plain;
  spec.data.clear();
  Compressor compressor;
  const size_t half = plain.data.size() / 2;
  Append(spec.data, compressor.Record(absl::MakeConstSpan(plain.data).first(half), false));
  const size_t second_at = spec.data.size();
  Append(spec.data, compressor.Record(absl::MakeConstSpan(plain.data).subspan(half), false));
  FileSpec cut = spec;
  cut.data.resize(second_at);
  std::vector<std::string> problems;
  EXPECT_EQ(ReadAllOk(FileMode(cut), &problems).size(), 100u);

  for (size_t i = second_at + 8; i < second_at + 12; ++i) spec.data[i] ^= 0xff;
  EXPECT_LE(ReadAllOk(FileMode(spec), &problems).size(), 200u);
  EXPECT_THAT(problems, ElementsAre(HasSubstr("compressed data")));

  // COMPRESSED2 that claims more data than the record holds.
  FileSpec claims = plain;
  claims.data = RecordBuilder(83, 0).U64(17).U64(0).Done();
  EXPECT_EQ(ReadAllOk(FileMode(claims), &problems).size(), 0u);
  EXPECT_THAT(problems, ElementsAre(HasSubstr("claims 17 bytes of data")));
}

std::vector<uint8_t> Xz(const std::vector<uint8_t>& bytes) {
  std::vector<uint8_t> out(bytes.size() + 1024);
  size_t size = 0;
  EXPECT_EQ(lzma_easy_buffer_encode(1, LZMA_CHECK_CRC32, nullptr, bytes.data(), bytes.size(), out.data(),
                                    &size, out.size()),
            LZMA_OK);
  out.resize(size);
  return out;
}

std::vector<uint8_t> Gzip(const std::vector<uint8_t>& bytes) {
  std::vector<uint8_t> out(bytes.size() + 1024);
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = const_cast<uint8_t*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::vector<uint8_t> Zstd(const std::vector<uint8_t>& bytes) {
  std::vector<uint8_t> out(ZSTD_compressBound(bytes.size()));
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3));
  return out;
}

TEST(PerfDataTest, FilesCompressedAsAWhole) {
  const std::vector<uint8_t> plain = FileMode(OneEvent(5000));
  for (const auto& pack : {Xz, Gzip, Zstd}) {
    const std::vector<uint8_t> packed = pack(plain);
    ASSERT_LT(packed.size(), plain.size());
    EXPECT_EQ(ReadAllOk(packed).size(), 5000u);
    // Cut short, and damaged: an error, never a shorter file.
    for (size_t size : {packed.size() - 1, packed.size() / 2, size_t{20}}) {
      auto file = OpenBytes({packed.begin(), packed.begin() + static_cast<long>(size)});
      ASSERT_FALSE(file.ok());
      EXPECT_THAT(std::string(file.status().message()), HasSubstr("f.data: offset "));
    }
    // More than allowed.
    PerfDataOptions options;
    options.max_unpacked_bytes = 10000;
    EXPECT_THAT(
        std::string(PerfDataFile::FromDescriptor(DescriptorOf(packed), "f.data", options).status().message()),
        HasSubstr("more than 10000 bytes"));
  }
}

TEST(PerfDataTest, ThroughAPipe) {
  for (const std::vector<uint8_t>& bytes : {FileMode(OneEvent(3000)), Xz(PipeMode(OneEvent(3000)))}) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    std::thread writer([&] {
      size_t at = 0;
      while (at < bytes.size()) {
        const ssize_t wrote = write(ends[1], bytes.data() + at, std::min<size_t>(bytes.size() - at, 777));
        if (wrote <= 0) break;
        at += static_cast<size_t>(wrote);
      }
      close(ends[1]);
    });
    auto file = PerfDataFile::FromDescriptor(ends[0], "standard input");
    writer.join();
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->modified_unix_seconds(), 0);
    auto seen = ReadAll(**file);
    ASSERT_TRUE(seen.ok());
    EXPECT_EQ(seen->size(), (*file)->pipe_mode() ? 3001u : 3000u);
  }
}

// --kcore puts the file into a folder as `data`; --threads adds one file of bare records for each thread.
TEST(PerfDataTest, Folders) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/perf-data-folder-", getpid());
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  const FileSpec spec = OneEvent(3);
  const auto write_file = [&](const std::string& name, const std::vector<uint8_t>& bytes) {
    std::ofstream(absl::StrCat(folder, "/", name), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  };
  EXPECT_EQ(PerfDataFile::Open(folder).status().code(), absl::StatusCode::kNotFound);
  write_file("data", FileMode(spec));
  write_file("data.0", spec.data);
  write_file("data.10", OneEvent(10).data);
  write_file("data.2", {1, 2, 3});
  write_file("other", {1, 2, 3});
  auto file = PerfDataFile::Open(folder);
  ASSERT_TRUE(file.ok()) << file.status();
  auto seen = ReadAll(**file);
  ASSERT_TRUE(seen.ok());
  EXPECT_EQ(seen->size(), 16u);
  EXPECT_THAT((*file)->problems(), ElementsAre(HasSubstr("/data.2: offset 0: 3 bytes are less than")));
  for (const char* name : {"data", "data.0", "data.10", "data.2", "other"}) {
    unlink(absl::StrCat(folder, "/", name).c_str());
  }
  rmdir(folder.c_str());
}

TEST(PerfDataTest, MissingFile) {
  const absl::Status status = PerfDataFile::Open("/nowhere/perf.data").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/perf.data"));
}

}  // namespace
}  // namespace xenprof::perf
