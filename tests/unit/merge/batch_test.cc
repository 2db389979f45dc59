#include "xenprof/merge/batch.h"

#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace xenprof::merge {
namespace {

constexpr uint64_t kSampleType = 1 | 2 | 4 | 32;  // IP | TID | TIME | CALLCHAIN

std::vector<uint64_t> SampleRecord(uint16_t misc, uint64_t ip, uint32_t pid, uint64_t time,
                                   const std::vector<uint64_t>& chain) {
  std::vector<uint64_t> words = {0, ip, static_cast<uint64_t>(pid) << 32 | pid, time, chain.size()};
  words.insert(words.end(), chain.begin(), chain.end());
  const perf::RecordHeader header{9, misc, static_cast<uint16_t>(words.size() * 8)};
  std::memcpy(words.data(), &header, sizeof header);
  return words;
}

absl::Span<const uint8_t> Bytes(const std::vector<uint64_t>& words) {
  return {reinterpret_cast<const uint8_t*>(words.data()), words.size() * 8};
}

TEST(BatchBuilder, EqualStacksAreHeldOnceAndDifferentOnesApart) {
  perf::RecordLayout layout;
  layout.sample_type = kSampleType;
  BatchBuilder builder(7, {});
  std::mt19937_64 random(1);
  std::map<std::pair<uint32_t, std::vector<uint64_t>>, uint32_t> expected;
  std::vector<std::pair<uint32_t, std::vector<uint64_t>>> order;
  for (int i = 0; i < 20000; ++i) {
    const uint32_t pid = 1 + random() % 3;
    std::vector<uint64_t> chain = {perf::kContextUser};
    const int depth = 1 + random() % 5;
    for (int d = 0; d < depth; ++d) chain.push_back(0x400000 + (random() % 6) * 16);
    const auto record = SampleRecord(2, chain[1], pid, 1000 + i, chain);
    builder.AddRecord(Bytes(record), layout);
    order.emplace_back(pid, chain);
  }
  const CpuBatch batch = builder.Take(50000);
  EXPECT_EQ(batch.cpu, 7u);
  EXPECT_EQ(batch.drained_until_ns, 50000u);
  ASSERT_EQ(batch.samples.size(), order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t id = batch.samples[i].stack;
    auto [known, added] = expected.emplace(order[i], id);
    EXPECT_EQ(known->second, id);
    const RawStack& stack = batch.stacks[id];
    ASSERT_EQ(stack.user_frames, order[i].second.size() - 1);
    EXPECT_EQ(stack.pid, order[i].first);
    EXPECT_TRUE(std::equal(order[i].second.begin() + 1, order[i].second.end(),
                           batch.addresses.begin() + stack.first_address));
  }
  EXPECT_EQ(batch.stacks.size(), expected.size());
}

TEST(BatchBuilder, ATakenBatchLeavesNothingBehind) {
  perf::RecordLayout layout;
  layout.sample_type = kSampleType;
  BatchBuilder builder(0, {});
  const auto record = SampleRecord(2, 0x400000, 5, 1, {perf::kContextUser, 0x400000});
  CpuBatch recycled;
  for (int round = 0; round < 3; ++round) {
    builder.AddRecord(Bytes(record), layout);
    builder.AddRecord(Bytes(record), layout);
    CpuBatch batch = builder.Take(round, std::move(recycled));
    EXPECT_EQ(batch.samples.size(), 2u);
    EXPECT_EQ(batch.stacks.size(), 1u);
    EXPECT_EQ(batch.addresses.size(), 1u);
    recycled = std::move(batch);
  }
  EXPECT_TRUE(builder.Take(9).empty());
  EXPECT_EQ(builder.evidence().samples, 6u);
}

TEST(BatchBuilder, BadAndUnknownRecordsAreCounted) {
  perf::RecordLayout layout;
  layout.sample_type = kSampleType;
  BatchBuilder builder(0, {});
  auto lying = SampleRecord(2, 0x400000, 5, 1, {perf::kContextUser, 0x400000});
  lying[4] = 1000;  // a chain longer than the record
  builder.AddRecord(Bytes(lying), layout);
  std::vector<uint64_t> unknown = {0, 0};
  const perf::RecordHeader header{200, 0, 16};
  std::memcpy(unknown.data(), &header, sizeof header);
  builder.AddRecord(Bytes(unknown), layout);
  const CpuBatch batch = builder.Take(1);
  EXPECT_EQ(batch.bad_records, 1u);
  EXPECT_EQ(batch.unknown_records, 1u);
  EXPECT_EQ(batch.first_bad_record, "SAMPLE record of 56 bytes claims a chain of 1000 entries where 2 fit");
  EXPECT_TRUE(batch.samples.empty());
}

TEST(BatchBuilder, EvidenceTellsWhatWasSeen) {
  BatchBuilder builder(0, {});
  perf::Sample sample;
  sample.mode = perf::CpuMode::kKernel;
  sample.ip = 0xffff82d040200000;
  const uint64_t chain[] = {perf::kContextKernel, sample.ip, 0xffff82d040200100, 0xffff82d040200200};
  sample.chain = chain;
  builder.AddSample(sample);
  sample.mode = perf::CpuMode::kGuestUser;
  sample.ip = 0x400000;
  sample.chain = {};
  builder.AddSample(sample);
  EXPECT_EQ(builder.evidence().samples, 2u);
  EXPECT_EQ(builder.evidence().hypervisor_samples, 1u);
  EXPECT_EQ(builder.evidence().most_hypervisor_frames, 3u);
  EXPECT_EQ(builder.evidence().guest_samples, 1u);
}

}  // namespace
}  // namespace xenprof::merge
