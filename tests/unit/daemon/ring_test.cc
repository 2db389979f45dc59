#include "xenprof/perf/ring.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"
#include "xenprof/perf/testing/fake_ring.h"

namespace xenprof::perf {
namespace {

using testing::FakeRing;

// A record whose every word behind the header tells its number.
std::vector<uint8_t> Numbered(uint32_t number, uint16_t size) {
  std::vector<uint64_t> words(size / 8, number);
  const perf_event_header header = {PERF_RECORD_SAMPLE, 2, size};
  memcpy(words.data(), &header, 8);
  std::vector<uint8_t> bytes(size);
  memcpy(bytes.data(), words.data(), size);
  return bytes;
}

void ExpectNumbered(absl::Span<const uint8_t> record, uint32_t number, uint16_t size) {
  ASSERT_EQ(record.size(), size);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(record.data()) % 8, 0u);
  const std::vector<uint8_t> want = Numbered(number, size);
  EXPECT_EQ(memcmp(record.data(), want.data(), size), 0) << "record " << number;
}

TEST(Ring, EmptyRingGivesNothing) {
  FakeRing fake(4096);
  Ring ring = fake.MakeRing();
  const DrainResult result = ring.Drain([](absl::Span<const uint8_t>) { FAIL(); });
  EXPECT_EQ(result.records, 0u);
  EXPECT_EQ(result.bad_records, 0u);
}

TEST(Ring, RecordsWrapAtEveryOffset) {
  constexpr uint16_t kSize = 72;
  for (uint64_t position = 0; position < 256; position += 8) {
    FakeRing fake(256, position);
    Ring ring = fake.MakeRing();
    uint32_t written = 0, read = 0;
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(fake.Write(Numbered(written++, kSize)));
      const DrainResult result =
          ring.Drain([&](absl::Span<const uint8_t> record) { ExpectNumbered(record, read++, kSize); });
      EXPECT_EQ(result.records, 3u);
      EXPECT_EQ(result.bytes, 3u * kSize);
      EXPECT_EQ(fake.tail(), fake.head());
    }
    EXPECT_EQ(read, written);
  }
}

TEST(Ring, LargestRecordWraps) {
  constexpr uint16_t kSize = 65528;
  FakeRing fake(1 << 17, (1 << 17) - 8);
  Ring ring = fake.MakeRing();
  ASSERT_TRUE(fake.Write(Numbered(7, kSize)));
  int seen = 0;
  ring.Drain([&](absl::Span<const uint8_t> record) {
    ExpectNumbered(record, 7, kSize);
    ++seen;
  });
  EXPECT_EQ(seen, 1);
}

TEST(Ring, StopsAtTheHeadSeenOnEntry) {
  FakeRing fake(4096);
  Ring ring = fake.MakeRing();
  ASSERT_TRUE(fake.Write(Numbered(0, 64)));
  uint32_t seen = 0;
  const DrainResult first = ring.Drain([&](absl::Span<const uint8_t>) {
    ++seen;
    // The kernel is quicker than we are.
    ASSERT_TRUE(fake.Write(Numbered(seen, 64)));
    ASSERT_LT(seen, 10u);
  });
  EXPECT_EQ(first.records, 1u);
  EXPECT_EQ(ring.Pending(), 64u);
}

TEST(Ring, LyingLengthsSkipToTheHead) {
  for (uint16_t lie : {0, 4, 7, 12, 20, 4000, 65535}) {
    FakeRing fake(4096, 4096 - 80);
    Ring ring = fake.MakeRing();
    ASSERT_TRUE(fake.Write(Numbered(1, 64)));
    std::vector<uint8_t> bad = Numbered(2, 64);
    memcpy(bad.data() + 6, &lie, 2);
    fake.WriteRaw(bad);
    ASSERT_TRUE(fake.Write(Numbered(3, 64)));
    uint32_t seen = 0;
    DrainResult result = ring.Drain([&](absl::Span<const uint8_t> record) {
      ++seen;
      ExpectNumbered(record, 1, 64);
    });
    EXPECT_EQ(seen, 1u) << "length " << lie;
    EXPECT_EQ(result.bad_records, 1u);
    EXPECT_EQ(result.skipped_bytes, 128u);
    EXPECT_EQ(fake.tail(), fake.head());
    // And on it goes.
    ASSERT_TRUE(fake.Write(Numbered(4, 64)));
    result = ring.Drain([&](absl::Span<const uint8_t> record) { ExpectNumbered(record, 4, 64); });
    EXPECT_EQ(result.records, 1u);
    EXPECT_EQ(result.bad_records, 0u);
  }
}

TEST(Ring, HeadsThatCannotBe) {
  for (uint64_t jump : {uint64_t{4096} + 64, uint64_t{1} << 40, ~uint64_t{0} - 1023, uint64_t{4}}) {
    FakeRing fake(4096, 1024);
    Ring ring = fake.MakeRing();
    fake.SetHead(1024 + jump);
    const DrainResult result = ring.Drain([](absl::Span<const uint8_t>) { FAIL(); });
    EXPECT_EQ(result.bad_records, 1u) << jump;
    EXPECT_EQ(fake.tail(), fake.head());
  }
}

TEST(Ring, ATailThatOthersMovedIsIgnored) {
  FakeRing fake(4096);
  Ring ring = fake.MakeRing();
  ASSERT_TRUE(fake.Write(Numbered(1, 64)));
  fake.page()->data_tail = 12345;
  uint32_t seen = 0;
  ring.Drain([&](absl::Span<const uint8_t> record) {
    ExpectNumbered(record, 1, 64);
    ++seen;
  });
  EXPECT_EQ(seen, 1u);
  EXPECT_EQ(fake.tail(), 64u);
}

TEST(Ring, GivesSpaceBackWhileReading) {
  FakeRing fake(1 << 20);
  Ring ring = fake.MakeRing();
  while (fake.Write(Numbered(0, 1024))) {
  }
  EXPECT_EQ(fake.total_lost(), 1u);
  uint64_t records = 0;
  bool room = false;
  ring.Drain([&](absl::Span<const uint8_t>) {
    if (++records == 100) room = fake.tail() > 0;
  });
  EXPECT_TRUE(room);
}

TEST(Ring, AWriterOnAnotherThread) {
  FakeRing fake(1 << 14);
  Ring ring = fake.MakeRing();
  constexpr uint32_t kRecords = 200000;
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (uint32_t i = 0; i < kRecords; ++i) {
      const uint16_t size = static_cast<uint16_t>(16 + 8 * (i % 30));
      const std::vector<uint8_t> record = Numbered(i, size);
      while (fake.head() + size - fake.tail() > fake.data_bytes()) std::this_thread::yield();
      ASSERT_TRUE(fake.Write(record));
    }
    done = true;
  });
  uint32_t seen = 0;
  while (!done || ring.Pending() > 0) {
    ring.Drain([&](absl::Span<const uint8_t> record) {
      ExpectNumbered(record, seen, static_cast<uint16_t>(16 + 8 * (seen % 30)));
      ++seen;
    });
  }
  writer.join();
  EXPECT_EQ(seen, kRecords);
}

}  // namespace
}  // namespace xenprof::perf
