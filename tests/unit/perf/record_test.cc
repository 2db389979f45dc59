// Decoding of single records against bytes written field by field.
#include "xenprof/perf/record.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/unit/perf/record_builder.h"

namespace xenprof::perf {
namespace {

constexpr uint64_t kAllIdentity = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID |
                                  PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER;

RecordLayout Layout(uint64_t sample_type, bool sample_id_all = true, uint64_t read_format = 0) {
  RecordLayout layout;
  layout.sample_type = sample_type;
  layout.sample_id_all = sample_id_all;
  layout.read_format = read_format;
  return layout;
}

// The record in memory of exactly its size, so that a sanitizer sees a read beyond it.
class Exact {
 public:
  explicit Exact(absl::Span<const uint8_t> bytes) : copy_(new uint8_t[bytes.size()]), size_(bytes.size()) {
    std::memcpy(copy_.get(), bytes.data(), bytes.size());
  }
  absl::Span<const uint8_t> span() const {
    // operator new[] aligns to 16 bytes.
    return absl::MakeConstSpan(copy_.get(), size_);
  }

 private:
  std::unique_ptr<uint8_t[]> copy_;
  size_t size_;
};

TEST(CheckRecordTest, NamesOffsetAndReason) {
  const std::vector<uint8_t> good = RecordBuilder(PERF_RECORD_LOST, 0).U64(1).U64(2).Done();
  EXPECT_TRUE(CheckRecord(good, 0).ok());
  EXPECT_EQ(CheckRecord(absl::MakeConstSpan(good).first(7), 40).message(),
            "offset 40: 7 bytes left, a record header has 8");
  EXPECT_EQ(CheckRecord(absl::MakeConstSpan(good).first(20), 40).message(),
            "offset 40: LOST record claims 24 bytes where 20 are left");
  std::vector<uint8_t> small = good;
  small[6] = 7;
  EXPECT_EQ(CheckRecord(small, 8).message(),
            "offset 8: LOST record claims a size of 7, less than its header");
}

// Every combination of the fields that lie before the chain and of the chain itself.
TEST(DecodeSampleTest, EveryCombinationOfFields) {
  const uint64_t bits[] = {PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_IP,   PERF_SAMPLE_TID,       PERF_SAMPLE_TIME,
                           PERF_SAMPLE_ADDR,       PERF_SAMPLE_ID,   PERF_SAMPLE_STREAM_ID, PERF_SAMPLE_CPU,
                           PERF_SAMPLE_PERIOD,     PERF_SAMPLE_READ, PERF_SAMPLE_CALLCHAIN};
  const SampleFields f;
  for (uint32_t choice = 0; choice < 1u << std::size(bits); ++choice) {
    uint64_t type = 0;
    for (size_t i = 0; i < std::size(bits); ++i) {
      if (choice >> i & 1) type |= bits[i];
    }
    const Exact record(BuildSample(type, PERF_RECORD_MISC_GUEST_KERNEL, f));
    Sample s;
    ASSERT_TRUE(DecodeSample(record.span(), Layout(type), &s).ok()) << std::hex << type;
    EXPECT_EQ(s.mode, CpuMode::kGuestKernel);
    EXPECT_EQ(s.ip, type & PERF_SAMPLE_IP ? f.ip : 0);
    EXPECT_EQ(s.pid, type & PERF_SAMPLE_TID ? f.pid : 0);
    EXPECT_EQ(s.tid, type & PERF_SAMPLE_TID ? f.tid : 0);
    EXPECT_EQ(s.time_ns, type & PERF_SAMPLE_TIME ? f.time : 0);
    EXPECT_EQ(s.id, type & (PERF_SAMPLE_ID | PERF_SAMPLE_IDENTIFIER) ? f.id : 0);
    EXPECT_EQ(s.cpu, type & PERF_SAMPLE_CPU ? f.cpu : ~0u);
    EXPECT_EQ(s.period, type & PERF_SAMPLE_PERIOD ? f.period : 0);
    EXPECT_EQ(std::vector<uint64_t>(s.chain.begin(), s.chain.end()),
              type & PERF_SAMPLE_CALLCHAIN ? f.chain : std::vector<uint64_t>());
  }
}

// PERF_SAMPLE_READ has the length its read_format says.
TEST(DecodeSampleTest, ReadFormats) {
  SampleFields f;
  for (uint64_t format = 0; format < 32; ++format) {
    f.read_values.clear();
    const bool group = format & PERF_FORMAT_GROUP;
    const int per_value = 1 + !!(format & PERF_FORMAT_ID) + !!(format & 16 /* PERF_FORMAT_LOST */);
    const int times =
        !!(format & PERF_FORMAT_TOTAL_TIME_ENABLED) + !!(format & PERF_FORMAT_TOTAL_TIME_RUNNING);
    if (group) f.read_values.push_back(3);
    for (int i = 0; i < (group ? 3 : 1) * per_value + times; ++i) f.read_values.push_back(1000 + i);
    const uint64_t type = PERF_SAMPLE_IP | PERF_SAMPLE_READ | PERF_SAMPLE_CALLCHAIN;
    const Exact record(BuildSample(type, PERF_RECORD_MISC_USER, f));
    Sample s;
    ASSERT_TRUE(DecodeSample(record.span(), Layout(type, true, format), &s).ok()) << format;
    EXPECT_EQ(std::vector<uint64_t>(s.chain.begin(), s.chain.end()), f.chain) << format;
  }
}

TEST(DecodeSampleTest, HugeCountsAreRefused) {
  SampleFields f;
  const uint64_t type = PERF_SAMPLE_IP | PERF_SAMPLE_READ | PERF_SAMPLE_CALLCHAIN;
  for (uint64_t count : {uint64_t{4}, uint64_t{1} << 61, ~uint64_t{0}}) {
    f.read_values = {count, 1};
    const Exact record(BuildSample(type, 0, f));
    Sample s;
    EXPECT_FALSE(
        DecodeSample(record.span(), Layout(type, true, PERF_FORMAT_GROUP | PERF_FORMAT_ID), &s).ok());
  }
  f.read_values = {1};
  std::vector<uint8_t> bytes = BuildSample(type, 0, f);
  const size_t count_at = 8 + 8 + 8;
  for (uint64_t count : {uint64_t{6}, uint64_t{1} << 61, ~uint64_t{0}}) {
    std::memcpy(bytes.data() + count_at, &count, 8);
    const Exact record(bytes);
    Sample s;
    const absl::Status status = DecodeSample(record.span(), Layout(type), &s);
    EXPECT_NE(status.message().find("chain"), absl::string_view::npos) << status;
  }
}

// What lies behind the chain does not matter: raw data, branches, registers, stack copies of 8 KiB and more.
TEST(DecodeSampleTest, StackCopiesAreSteppedOver) {
  SampleFields f;
  f.stack.assign(60 << 10, 0xee);
  const uint64_t type = PERF_SAMPLE_IP | PERF_SAMPLE_TIME | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_RAW |
                        PERF_SAMPLE_BRANCH_STACK | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
  const Exact record(BuildSample(type, PERF_RECORD_MISC_USER, f));
  Sample s;
  ASSERT_TRUE(DecodeSample(record.span(), Layout(type), &s).ok());
  EXPECT_EQ(s.ip, f.ip);
  EXPECT_EQ(s.chain.size(), f.chain.size());
}

// Registers at the interrupt: the ip is found behind those of lower numbers in the mask.
TEST(DecodeSampleTest, InterruptedAddress) {
  const uint64_t type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_REGS_INTR;
  SampleFields f;
  for (const uint64_t lower : {uint64_t{0}, uint64_t{1} << 3, uint64_t{0xff}}) {
    RecordBuilder b(PERF_RECORD_SAMPLE, 4);
    b.U64(f.ip).U64(2).U64(kContextKernel).U64(kContextUser).U64(PERF_SAMPLE_REGS_ABI_64);
    for (uint64_t bits = lower; bits != 0; bits &= bits - 1) b.U64(0xbad);
    b.U64(0xffffffff81777777).U64(0xbad);  // ip, flags
    RecordLayout layout;
    layout.sample_type = type;
    layout.sample_regs_intr = lower | uint64_t{1} << 8 | uint64_t{1} << 9;
    const std::vector<uint8_t> record = b.Done();
    Sample s;
    ASSERT_TRUE(DecodeSample(record, layout, &s).ok());
    EXPECT_EQ(s.interrupted_ip, 0xffffffff81777777);
    EXPECT_EQ(s.chain.size(), 2u);
    // Cut within the registers.
    for (size_t left = record.size() - 16; left >= record.size() - 24; left -= 8) {
      std::vector<uint8_t> cut(record.begin(), record.begin() + left);
      const uint16_t size = static_cast<uint16_t>(left);
      std::memcpy(cut.data() + 6, &size, sizeof size);
      EXPECT_FALSE(DecodeSample(cut, layout, &s).ok()) << left;
    }
    // A mask without the ip, and an abi of 0: no registers follow.
    layout.sample_regs_intr = lower | uint64_t{1} << 9;
    ASSERT_TRUE(DecodeSample(record, layout, &s).ok());
    EXPECT_EQ(s.interrupted_ip, 0u);
  }
  RecordBuilder none(PERF_RECORD_SAMPLE, 4);
  none.U64(f.ip).U64(0).U64(PERF_SAMPLE_REGS_ABI_NONE);
  RecordLayout layout;
  layout.sample_type = type;
  layout.sample_regs_intr = uint64_t{1} << 8;
  Sample s;
  ASSERT_TRUE(DecodeSample(none.Done(), layout, &s).ok());
  EXPECT_EQ(s.interrupted_ip, 0u);
}

TEST(DecodeSampleTest, NothingOfAnEarlierSampleIsKept) {
  SampleFields f;
  Sample s;
  const Exact full(BuildSample(PERF_SAMPLE_IP | PERF_SAMPLE_CPU | PERF_SAMPLE_CALLCHAIN, 0, f));
  ASSERT_TRUE(
      DecodeSample(full.span(), Layout(PERF_SAMPLE_IP | PERF_SAMPLE_CPU | PERF_SAMPLE_CALLCHAIN), &s).ok());
  const Exact bare(BuildSample(PERF_SAMPLE_TIME, 0, f));
  ASSERT_TRUE(DecodeSample(bare.span(), Layout(PERF_SAMPLE_TIME), &s).ok());
  EXPECT_EQ(s.ip, 0u);
  EXPECT_EQ(s.cpu, ~0u);
  EXPECT_TRUE(s.chain.empty());
}

// Cut anywhere, a sample whose header agrees with its length is refused or decodes to a prefix of the truth.
TEST(DecodeSampleTest, EveryTruncation) {
  const SampleFields f;
  const uint64_t type = kAllIdentity | PERF_SAMPLE_IP | PERF_SAMPLE_ADDR | PERF_SAMPLE_PERIOD |
                        PERF_SAMPLE_READ | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_RAW | PERF_SAMPLE_STACK_USER;
  const std::vector<uint8_t> whole = BuildSample(type, 0, f);
  const size_t needed = 8 + 8 * 10 + 8 + 8 * f.chain.size();
  for (size_t size = 8; size < whole.size(); ++size) {
    std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<long>(size));
    const uint16_t size16 = static_cast<uint16_t>(size);
    std::memcpy(cut.data() + 6, &size16, 2);
    const Exact record(cut);
    Sample s;
    EXPECT_EQ(DecodeSample(record.span(), Layout(type), &s).ok(), size >= needed) << size;
  }
}

TEST(DecodeIdentityTest, EveryCombination) {
  const uint64_t bits[] = {PERF_SAMPLE_TID,       PERF_SAMPLE_TIME, PERF_SAMPLE_ID,
                           PERF_SAMPLE_STREAM_ID, PERF_SAMPLE_CPU,  PERF_SAMPLE_IDENTIFIER};
  SampleFields f;
  for (uint32_t choice = 0; choice < 1u << std::size(bits); ++choice) {
    // Fields of samples only change nothing.
    uint64_t type = PERF_SAMPLE_IP | PERF_SAMPLE_ADDR | PERF_SAMPLE_PERIOD | PERF_SAMPLE_CALLCHAIN;
    for (size_t i = 0; i < std::size(bits); ++i) {
      if (choice >> i & 1) type |= bits[i];
    }
    RecordBuilder b(PERF_RECORD_SWITCH, 0);
    AddIdentity(b, type, f);
    const Exact record(b.Done());
    RecordIdentity identity;
    ASSERT_TRUE(DecodeIdentity(record.span(), Layout(type), &identity).ok());
    EXPECT_EQ(identity.pid, type & PERF_SAMPLE_TID ? f.pid : 0);
    EXPECT_EQ(identity.tid, type & PERF_SAMPLE_TID ? f.tid : 0);
    EXPECT_EQ(identity.time_ns, type & PERF_SAMPLE_TIME ? f.time : 0);
    EXPECT_EQ(identity.id, type & (PERF_SAMPLE_ID | PERF_SAMPLE_IDENTIFIER) ? f.id : 0);
    EXPECT_EQ(identity.cpu, type & PERF_SAMPLE_CPU ? f.cpu : ~0u);
    // Without sample_id_all there are none.
    ASSERT_TRUE(DecodeIdentity(record.span(), Layout(type, false), &identity).ok());
    EXPECT_EQ(identity.time_ns, 0u);
    EXPECT_EQ(identity.cpu, ~0u);
  }
}

TEST(DecodeIdentityTest, RecordTooShort) {
  const Exact record(RecordBuilder(PERF_RECORD_SWITCH, 0).U64(1).Done());
  RecordIdentity identity;
  EXPECT_FALSE(DecodeIdentity(record.span(), Layout(PERF_SAMPLE_TID | PERF_SAMPLE_TIME), &identity).ok());
}

class SidebandTest : public ::testing::TestWithParam<bool> {
 protected:
  bool with_identity() const { return GetParam(); }
  RecordLayout layout() const { return Layout(kAllIdentity, with_identity()); }
  std::vector<uint8_t> Finish(RecordBuilder& b) const {
    if (with_identity()) AddIdentity(b, kAllIdentity, fields_);
    return b.Done();
  }
  SidebandEvent Decode(RecordBuilder& b) const {
    const Exact record(Finish(b));
    SidebandEvent event;
    event.name = "left over";
    const absl::Status status = DecodeSideband(record.span(), layout(), &event);
    EXPECT_TRUE(status.ok()) << status;
    if (with_identity()) {
      EXPECT_EQ(event.time_ns, fields_.time);
      EXPECT_EQ(event.cpu, fields_.cpu);
    }
    return event;
  }
  SampleFields fields_;
};
INSTANTIATE_TEST_SUITE_P(WithAndWithoutIdentity, SidebandTest, ::testing::Bool());

TEST_P(SidebandTest, Mmap) {
  RecordBuilder b(PERF_RECORD_MMAP, PERF_RECORD_MISC_KERNEL);
  b.U32(~0u)
      .U32(0)
      .U64(0xffffffff81000000)
      .U64(0xa00000)
      .U64(0xffffffff81000000)
      .PaddedText("[kernel.kallsyms]_text");
  const SidebandEvent e = Decode(b);
  EXPECT_EQ(e.type, SidebandEvent::Type::kMmap);
  EXPECT_EQ(e.mode, CpuMode::kKernel);
  EXPECT_TRUE(e.exec);
  EXPECT_EQ(e.pid, ~0u);
  EXPECT_EQ(e.address, 0xffffffff81000000);
  EXPECT_EQ(e.length, 0xa00000u);
  EXPECT_EQ(e.page_offset, 0xffffffff81000000);
  EXPECT_EQ(e.name, "[kernel.kallsyms]_text");
}

TEST_P(SidebandTest, MmapOfData) {
  RecordBuilder b(PERF_RECORD_MMAP, PERF_RECORD_MISC_USER | PERF_RECORD_MISC_MMAP_DATA);
  b.U32(1).U32(1).U64(0x1000).U64(0x1000).U64(0).PaddedText("//anon");
  EXPECT_FALSE(Decode(b).exec);
}

TEST_P(SidebandTest, Mmap2WithInode) {
  RecordBuilder b(PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER);
  b.U32(42).U32(43).U64(0x7f0000001000).U64(0x2000).U64(0x3000);
  b.U32(8).U32(1).U64(12345).U64(6).U32(5 /* PROT_READ|PROT_EXEC */).U32(2).PaddedText("/usr/lib/libc.so.6");
  const SidebandEvent e = Decode(b);
  EXPECT_EQ(e.type, SidebandEvent::Type::kMmap);
  EXPECT_EQ(e.pid, 42u);
  EXPECT_EQ(e.tid, 43u);
  EXPECT_EQ(e.page_offset, 0x3000u);
  EXPECT_EQ(e.device_major, 8u);
  EXPECT_EQ(e.device_minor, 1u);
  EXPECT_EQ(e.inode, 12345u);
  EXPECT_TRUE(e.exec);
  EXPECT_TRUE(e.build_id.empty());
  EXPECT_EQ(e.name, "/usr/lib/libc.so.6");
}

TEST_P(SidebandTest, Mmap2WithBuildIdsOfEveryLength) {
  for (uint8_t length = 0; length <= 21; ++length) {
    RecordBuilder b(PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER | PERF_RECORD_MISC_MMAP_BUILD_ID);
    b.U32(42).U32(43).U64(0x7f0000001000).U64(0x2000).U64(0x3000);
    b.Add(length).Add(uint8_t{0}).U16(0);
    for (uint8_t i = 0; i < 20; ++i) b.Add(static_cast<uint8_t>(0xa0 + i));
    b.U32(1 /* PROT_READ */).U32(2).PaddedText("/bin/x");
    if (length > 20) {
      const Exact record(Finish(b));
      SidebandEvent e;
      EXPECT_FALSE(DecodeSideband(record.span(), layout(), &e).ok());
      continue;
    }
    const SidebandEvent e = Decode(b);
    ASSERT_EQ(e.build_id.size(), length);
    for (uint8_t i = 0; i < length; ++i) EXPECT_EQ(static_cast<uint8_t>(e.build_id[i]), 0xa0 + i);
    EXPECT_EQ(e.inode, 0u);
    EXPECT_FALSE(e.exec);
    EXPECT_EQ(e.name, "/bin/x");
  }
}

TEST_P(SidebandTest, Comm) {
  RecordBuilder b(PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC);
  b.U32(42).U32(43).PaddedText("kworker/0:1");
  const SidebandEvent e = Decode(b);
  EXPECT_EQ(e.type, SidebandEvent::Type::kComm);
  EXPECT_TRUE(e.exec);
  EXPECT_EQ(e.pid, 42u);
  EXPECT_EQ(e.tid, 43u);
  EXPECT_EQ(e.name, "kworker/0:1");
}

// A name that fills its field to the last byte has no terminator left.
TEST_P(SidebandTest, NameWithoutTerminator) {
  RecordBuilder b(PERF_RECORD_COMM, 0);
  b.U32(1).U32(1).Text("sixteen bytes ok");
  EXPECT_EQ(Decode(b).name, "sixteen bytes ok");
}

TEST_P(SidebandTest, ForkAndExit) {
  for (uint32_t type : {PERF_RECORD_FORK, PERF_RECORD_EXIT}) {
    RecordBuilder b(type, 0);
    b.U32(50).U32(40).U32(51).U32(41).U64(999);
    const SidebandEvent e = Decode(b);
    EXPECT_EQ(e.type, type == PERF_RECORD_FORK ? SidebandEvent::Type::kFork : SidebandEvent::Type::kExit);
    EXPECT_EQ(e.pid, 50u);
    EXPECT_EQ(e.parent_pid, 40u);
    EXPECT_EQ(e.tid, 51u);
    EXPECT_EQ(e.parent_tid, 41u);
    if (!with_identity()) {
      EXPECT_EQ(e.time_ns, 999u);
    }
  }
}

TEST_P(SidebandTest, LostAndThrottled) {
  RecordBuilder lost(PERF_RECORD_LOST, 0);
  lost.U64(5).U64(17);
  SidebandEvent e = Decode(lost);
  EXPECT_EQ(e.type, SidebandEvent::Type::kLost);
  EXPECT_EQ(e.count, 17u);

  RecordBuilder lost_samples(PERF_RECORD_LOST_SAMPLES, 0);
  lost_samples.U64(18);
  e = Decode(lost_samples);
  EXPECT_EQ(e.type, SidebandEvent::Type::kLostSamples);
  EXPECT_EQ(e.count, 18u);

  for (uint32_t type : {PERF_RECORD_THROTTLE, PERF_RECORD_UNTHROTTLE}) {
    RecordBuilder b(type, 0);
    b.U64(888).U64(5).U64(6);
    e = Decode(b);
    EXPECT_EQ(e.type, type == PERF_RECORD_THROTTLE ? SidebandEvent::Type::kThrottle
                                                   : SidebandEvent::Type::kUnthrottle);
    if (!with_identity()) {
      EXPECT_EQ(e.time_ns, 888u);
    }
  }
}

TEST_P(SidebandTest, Ksymbol) {
  for (uint16_t flags : {0, 1}) {
    RecordBuilder b(PERF_RECORD_KSYMBOL, 0);
    b.U64(0xffffffffc0001000).U32(0x80).U16(1).U16(flags).PaddedText("bpf_prog_abc");
    const SidebandEvent e = Decode(b);
    EXPECT_EQ(e.type, SidebandEvent::Type::kKsymbol);
    EXPECT_EQ(e.address, 0xffffffffc0001000);
    EXPECT_EQ(e.length, 0x80u);
    EXPECT_EQ(e.unregister, flags == 1);
    EXPECT_EQ(e.name, "bpf_prog_abc");
  }
}

TEST_P(SidebandTest, KnownButUnusedAndUnknownTypes) {
  for (uint32_t type = 0; type < 64; ++type) {
    if (type >= 1 && type <= 7) continue;
    if (type == PERF_RECORD_SAMPLE || type == PERF_RECORD_MMAP2 || type == PERF_RECORD_LOST_SAMPLES ||
        type == PERF_RECORD_KSYMBOL) {
      continue;
    }
    RecordBuilder b(type, 0);
    b.U64(0).U64(0);
    const bool known = type >= 8 && type <= 22;
    EXPECT_EQ(Decode(b).type, known ? SidebandEvent::Type::kOther : SidebandEvent::Type::kUnknown) << type;
  }
}

// Cut anywhere, every type is refused or decoded, never read beyond.
TEST_P(SidebandTest, EveryTruncationOfEveryType) {
  for (uint32_t type = 0; type < 64; ++type) {
    RecordBuilder b(type, PERF_RECORD_MISC_MMAP_BUILD_ID);
    for (int i = 0; i < 12; ++i) b.U64(3);
    b.PaddedText("/some/name");
    const std::vector<uint8_t> whole = Finish(b);
    for (size_t size = 8; size <= whole.size(); ++size) {
      std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<long>(size));
      const uint16_t size16 = static_cast<uint16_t>(size);
      std::memcpy(cut.data() + 6, &size16, 2);
      const Exact record(cut);
      SidebandEvent e;
      const absl::Status status = DecodeSideband(record.span(), layout(), &e);
      if (!status.ok()) {
        EXPECT_FALSE(status.message().empty());
      }
      if (size == whole.size()) {
        EXPECT_TRUE(status.ok()) << RecordTypeName(type) << ": " << status;
      }
    }
  }
}

TEST(RecordTypeNameTest, Names) {
  EXPECT_EQ(RecordTypeName(PERF_RECORD_MMAP2), "MMAP2");
  EXPECT_EQ(RecordTypeName(PERF_RECORD_SAMPLE), "SAMPLE");
  EXPECT_EQ(RecordTypeName(PERF_RECORD_KSYMBOL), "KSYMBOL");
  EXPECT_EQ(RecordTypeName(99), "type 99");
}

}  // namespace
}  // namespace xenprof::perf
