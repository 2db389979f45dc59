#include "daemon/cpu_reader.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "absl/time/clock.h"
#include "daemon/clock.h"
#include "gtest/gtest.h"
#include "xenprof/perf/testing/fake_ring.h"

namespace xenprof::daemon {
namespace {

using perf::testing::CommRecord;
using perf::testing::FakeRing;
using perf::testing::SampleId;
using perf::testing::SampleRecord;
using Type = perf::SidebandEvent::Type;

constexpr uint64_t kKernelIp = 0xffffffff81000100;

ReaderOptions Options() {
  ReaderOptions options;
  options.cpu = 0;
  options.pin = false;
  options.layout.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CALLCHAIN;
  options.layout.sample_id_all = true;
  return options;
}

std::vector<uint8_t> KernelSample(uint64_t time_ns) {
  const uint64_t chain[] = {perf::kContextKernel, kKernelIp, kKernelIp + 0x200};
  return SampleRecord(PERF_RECORD_MISC_KERNEL, kKernelIp, 10, 11, time_ns, chain);
}

bool WaitUntil(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return false;
}

// All batches there are, as one.
struct Taken {
  std::vector<uint64_t> times;
  std::vector<perf::SidebandEvent> sideband;
  uint64_t bad = 0, shed = 0, drained_until_ns = 0;
  size_t batches = 0;

  void Add(const merge::CpuBatch& batch) {
    if (batch.empty() && batch.drained_until_ns == 0) return;  // no rest
    for (const merge::RawSample& sample : batch.samples) times.push_back(sample.time_ns);
    sideband.insert(sideband.end(), batch.sideband.begin(), batch.sideband.end());
    bad += batch.bad_records;
    shed += batch.shed_samples;
    EXPECT_GE(batch.drained_until_ns, drained_until_ns);
    drained_until_ns = batch.drained_until_ns;
    ++batches;
  }
  void TakeFrom(CpuReader* reader) {
    merge::CpuBatch batch;
    while (reader->TakeBatch(&batch)) {
      Add(batch);
      reader->Recycle(std::move(batch));
    }
  }
};

TEST(CpuReader, HandsOnWhatItIsAskedFor) {
  FakeRing fake(1 << 16);
  perf::Ring ring = fake.MakeRing();
  EventFd recorder;
  CpuReader reader(&ring, -1, Options(), &recorder);
  ASSERT_TRUE(reader.Start().ok());
  Taken taken;
  uint64_t time = 1000;
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(fake.Write(KernelSample(time++)));
    ASSERT_TRUE(fake.Write(CommRecord(10, 11, "worker", time++)));
    const uint64_t asked_ns = NowNs();
    reader.RequestDrain();
    ASSERT_TRUE(WaitUntil([&] { return reader.counters().drained_until_ns.load() >= asked_ns; }));
    taken.TakeFrom(&reader);
    ASSERT_EQ(taken.times.size(), 10u * (round + 1));
    ASSERT_GE(taken.drained_until_ns, asked_ns);
  }
  EXPECT_TRUE(std::is_sorted(taken.times.begin(), taken.times.end()));
  ASSERT_EQ(taken.sideband.size(), 50u);
  EXPECT_EQ(taken.sideband[0].name, "worker");
  EXPECT_EQ(reader.counters().samples.load(), 500u);
  EXPECT_EQ(reader.counters().last_sample_ns.load(), taken.times.back());
  EXPECT_EQ(taken.bad + taken.shed, 0u);
}

TEST(CpuReader, AnswersEvenWhenThereIsNothing) {
  FakeRing fake(4096);
  perf::Ring ring = fake.MakeRing();
  EventFd recorder;
  CpuReader reader(&ring, -1, Options(), &recorder);
  ASSERT_TRUE(reader.Start().ok());
  const uint64_t asked_ns = NowNs();
  reader.RequestDrain();
  ASSERT_TRUE(WaitUntil([&] { return reader.counters().drained_until_ns.load() >= asked_ns; }));
  Taken taken;
  taken.TakeFrom(&reader);
  EXPECT_EQ(taken.batches, 1u);
  EXPECT_TRUE(taken.times.empty());
}

TEST(CpuReader, TheRingsDescriptorWakesIt) {
  FakeRing fake(1 << 16);
  perf::Ring ring = fake.MakeRing();
  EventFd recorder;
  EventFd watermark;
  ReaderOptions options = Options();
  options.hand_on_samples = 5;
  CpuReader reader(&ring, watermark.fd(), options, &recorder);
  ASSERT_TRUE(reader.Start().ok());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(fake.Write(KernelSample(100 + i)));
  watermark.Signal();
  Taken taken;
  ASSERT_TRUE(WaitUntil([&] {
    taken.TakeFrom(&reader);
    return taken.times.size() == 5;
  }));
  watermark.Clear();
}

TEST(CpuReader, ShedsSamplesButKeepsSidebandWhenNobodyTakesThem) {
  FakeRing fake(1 << 20);
  perf::Ring ring = fake.MakeRing();
  EventFd recorder;
  ReaderOptions options = Options();
  options.hand_on_samples = 1;
  options.hold_bytes = 4096;
  CpuReader reader(&ring, -1, options, &recorder);
  ASSERT_TRUE(reader.Start().ok());
  uint64_t time = 1;
  uint64_t written = 0, comms = 0;
  const auto drain = [&] {
    reader.RequestDrain();
    ASSERT_TRUE(WaitUntil([&] { return fake.tail() == fake.head(); }));
  };
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 20; ++i, ++written) ASSERT_TRUE(fake.Write(KernelSample(time++)));
    ASSERT_TRUE(fake.Write(CommRecord(1, 1, "c", time++)));
    ++comms;
    drain();
  }
  Taken taken;
  taken.TakeFrom(&reader);
  // The queue is empty now: the next drain hands on what was held, and says what was not.
  drain();
  reader.Stop();
  taken.TakeFrom(&reader);
  taken.Add(reader.TakeRest());
  EXPECT_GT(taken.shed, 0u);
  EXPECT_EQ(taken.times.size() + taken.shed, written);
  EXPECT_EQ(reader.counters().shed.load(), taken.shed);
  EXPECT_EQ(taken.sideband.size(), comms);
  EXPECT_EQ(reader.counters().sideband_shed.load(), 0u);
}

TEST(CpuReader, SidebandHasItsOwnBound) {
  FakeRing fake(1 << 20);
  perf::Ring ring = fake.MakeRing();
  EventFd recorder;
  ReaderOptions options = Options();
  options.hold_sideband = 64;
  CpuReader reader(&ring, -1, options, &recorder);
  ASSERT_TRUE(reader.Start().ok());
  uint64_t written = 0;
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 20; ++i, ++written) ASSERT_TRUE(fake.Write(CommRecord(1, 1, "c", written + 1)));
    reader.RequestDrain();
    ASSERT_TRUE(WaitUntil([&] { return fake.tail() == fake.head(); }));
  }
  reader.Stop();
  Taken taken;
  taken.TakeFrom(&reader);
  taken.Add(reader.TakeRest());
  EXPECT_GT(reader.counters().sideband_shed.load(), 0u);
  EXPECT_EQ(taken.sideband.size() + reader.counters().sideband_shed.load(), written);
}

TEST(CpuReader, SheddingDropsSamplesOnly) {
  FakeRing fake(1 << 16);
  perf::Ring ring = fake.MakeRing();
  EventFd recorder;
  CpuReader reader(&ring, -1, Options(), &recorder);
  reader.SetShedding(true);
  ASSERT_TRUE(reader.Start().ok());
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(fake.Write(KernelSample(1 + i)));
  ASSERT_TRUE(fake.Write(CommRecord(1, 1, "c", 99)));
  reader.Stop();
  Taken taken;
  taken.TakeFrom(&reader);
  EXPECT_EQ(taken.times.size(), 0u);
  EXPECT_EQ(taken.shed, 30u);
  EXPECT_EQ(taken.sideband.size(), 1u);
}

TEST(CpuReader, CountsWhatTheKernelLost) {
  FakeRing fake(1024);
  fake.set_lost_trailer(SampleId(10, 11, 500));
  perf::Ring ring = fake.MakeRing();
  EventFd recorder;
  CpuReader reader(&ring, -1, Options(), &recorder);
  uint64_t written = 0;
  for (int i = 0; i < 40; ++i) written += fake.Write(KernelSample(1 + i)) ? 1 : 0;
  ASSERT_GT(fake.total_lost(), 0u);
  ASSERT_TRUE(reader.Start().ok());
  reader.RequestDrain();
  ASSERT_TRUE(WaitUntil([&] { return fake.tail() == fake.head(); }));
  ASSERT_TRUE(fake.Write(KernelSample(1000)));  // brings the record that tells of the loss
  ++written;
  reader.Stop();
  Taken taken;
  taken.TakeFrom(&reader);
  EXPECT_EQ(taken.times.size(), written);
  EXPECT_EQ(reader.counters().lost.load(), fake.total_lost());
  ASSERT_EQ(taken.sideband.size(), 1u);
  EXPECT_EQ(taken.sideband[0].type, Type::kLost);
  EXPECT_EQ(taken.sideband[0].count, fake.total_lost());
}

TEST(CpuReader, BadRecordsAreCountedAndNotFatal) {
  FakeRing fake(1 << 14);
  perf::Ring ring = fake.MakeRing();
  EventFd recorder;
  CpuReader reader(&ring, -1, Options(), &recorder);
  ASSERT_TRUE(fake.Write(KernelSample(1)));
  // A sample whose chain claims more entries than the record has.
  std::vector<uint8_t> liar = KernelSample(2);
  const uint64_t entries = 1000;
  memcpy(liar.data() + 32, &entries, sizeof(entries));
  ASSERT_TRUE(fake.Write(liar));
  ASSERT_TRUE(fake.Write(KernelSample(3)));
  const perf_event_header zero = {PERF_RECORD_SAMPLE, 0, 0};
  fake.WriteRaw(absl::Span<const uint8_t>(reinterpret_cast<const uint8_t*>(&zero), sizeof(zero)));
  ASSERT_TRUE(reader.Start().ok());
  reader.Stop();
  Taken taken;
  taken.TakeFrom(&reader);
  EXPECT_EQ(taken.times, (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(taken.bad, 2u);
}

TEST(CpuReader, ThrottledTimeAddsUp) {
  FakeRing fake(1 << 14);
  perf::Ring ring = fake.MakeRing();
  EventFd recorder;
  CpuReader reader(&ring, -1, Options(), &recorder);
  // struct { header; u64 time, id, stream_id; sample_id }
  const auto throttle = [&](uint32_t type, uint64_t time_ns) {
    std::vector<uint8_t> bytes(32);
    const perf_event_header header = {type, 0, 48};
    memcpy(bytes.data(), &header, 8);
    memcpy(bytes.data() + 8, &time_ns, 8);
    const std::vector<uint8_t> id = SampleId(1, 1, time_ns);
    bytes.insert(bytes.end(), id.begin(), id.end());
    ASSERT_TRUE(fake.Write(bytes));
  };
  throttle(PERF_RECORD_THROTTLE, 1000);
  throttle(PERF_RECORD_UNTHROTTLE, 1700);
  throttle(PERF_RECORD_THROTTLE, 5000);
  throttle(PERF_RECORD_UNTHROTTLE, 5050);
  ASSERT_TRUE(reader.Start().ok());
  reader.Stop();
  EXPECT_EQ(reader.counters().throttled_ns.load(), 750u);
}

TEST(CpuReader, KeepsUpWithAWriter) {
  FakeRing fake(1 << 18);
  perf::Ring ring = fake.MakeRing();
  EventFd recorder;
  ReaderOptions options = Options();
  CpuReader reader(&ring, -1, options, &recorder);
  ASSERT_TRUE(reader.Start().ok());
  constexpr uint64_t kSamples = 100000;
  std::thread writer([&] {
    for (uint64_t i = 0; i < kSamples; ++i) {
      while (fake.head() + 1024 - fake.tail() > fake.data_bytes()) {
        reader.RequestDrain();
        std::this_thread::yield();
      }
      ASSERT_TRUE(fake.Write(KernelSample(i + 1)));
    }
  });
  Taken taken;
  const bool all = WaitUntil([&] {
    reader.RequestDrain();
    taken.TakeFrom(&reader);
    return taken.times.size() + taken.shed == kSamples;
  });
  writer.join();
  reader.Stop();
  EXPECT_TRUE(all);
  EXPECT_TRUE(std::is_sorted(taken.times.begin(), taken.times.end()));
}

TEST(SpscQueue, EverythingComesOnceAndInOrder) {
  SpscQueue<uint64_t, 8> queue;
  constexpr uint64_t kValues = 300000;
  std::thread producer([&] {
    for (uint64_t value = 0; value < kValues;) {
      uint64_t copy = value;
      if (queue.TryPush(std::move(copy))) {
        ++value;
      } else {
        std::this_thread::yield();
      }
    }
  });
  for (uint64_t expected = 0; expected < kValues;) {
    uint64_t value;
    if (!queue.TryPop(&value)) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(value, expected++);
  }
  producer.join();
  EXPECT_EQ(queue.size(), 0u);
}

}  // namespace
}  // namespace xenprof::daemon
