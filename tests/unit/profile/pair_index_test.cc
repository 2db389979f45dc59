#include "xenprof/profile/pair_index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "xenprof/profile/stack_counts.h"

namespace xenprof::profile {
namespace {

TEST(PairIndexTest, NumbersPairsAsAMapWould) {
  PairIndex index;
  index.Reserve(10);
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> expected;
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    // Some owners with one key, some with a handful, some with thousands.
    const uint32_t owner = random() % 40, key = random() % (1u << owner % 14);
    const auto [entry, is_new] = expected.try_emplace({owner, key}, expected.size());
    const auto [number, added] = index.Insert(owner, key);
    ASSERT_EQ(number, entry->second);
    ASSERT_EQ(added, is_new);
  }
  EXPECT_EQ(index.size(), expected.size());
  size_t seen = 0;
  for (uint32_t owner = 0; owner < index.owners(); ++owner) {
    uint32_t before = PairIndex::kNone;
    index.ForEach(owner, [&](uint32_t number, uint32_t key) {
      EXPECT_EQ(number, expected.at({owner, key}));
      EXPECT_LT(number, before);
      before = number;
      ++seen;
    });
  }
  EXPECT_EQ(seen, expected.size());
}

TEST(StackCountsTest, SumsByTaskNameInOrder) {
  std::vector<merge::Task> tasks(4);  // [0] the idle task
  tasks[1] = {.pid = 1, .tid = 1, .comm = "a"};
  tasks[2] = {.pid = 2, .tid = 2, .comm = "b"};
  tasks[3] = {.pid = 3, .tid = 3, .comm = "a"};
  for (const bool by_name : {false, true}) {
    StackCounts counts(tasks, {true, by_name, true, false});
    counts.Add(5, 3, 0, 0, 10);
    counts.Add(5, 2, 0, 1, 10);
    counts.Add(5, 1, 0, 1, 10);
    counts.Add(5, 1, 0, 1, 20);  // the frequency changed
    counts.Add(2, 0, 7, 0, 10);
    std::vector<std::vector<uint64_t>> got;
    counts.ForEachStack([&](uint32_t stack, absl::Span<const StackCounts::Sum> sums) {
      for (const StackCounts::Sum& sum : sums)
        got.push_back({stack, sum.task, sum.domain, sum.count, sum.time_ns});
    });
    ASSERT_EQ(got.size(), by_name ? 4 : 5);
    EXPECT_EQ(got[0], (std::vector<uint64_t>{2, 0, 7, 1, 10}));
    uint64_t of_a = 0, time_of_a = 0;
    for (const auto& sum : got) {
      if (sum[0] == 5 && sum[1] != 2) of_a += sum[3], time_of_a += sum[4];
    }
    EXPECT_EQ(of_a, 3);
    EXPECT_EQ(time_of_a, 40);
    EXPECT_EQ(got.back()[1], by_name ? 2 : 3);  // "a" stands where its lowest task does
  }
}

}  // namespace
}  // namespace xenprof::profile
