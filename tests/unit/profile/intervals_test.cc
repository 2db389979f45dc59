#include "xenprof/profile/intervals.h"

#include <gtest/gtest.h>

namespace xenprof::profile {
namespace {

TEST(IntervalSetTest, JoinsWhatTouches) {
  IntervalSet set;
  set.Add({10, 20});
  set.Add({30, 40});
  set.Add({20, 30});
  ASSERT_EQ(set.intervals().size(), 1);
  EXPECT_EQ(set.intervals()[0].start, 10);
  EXPECT_EQ(set.intervals()[0].end, 40);
  set.Add({5, 5});  // empty
  EXPECT_EQ(set.length(), 30);
}

TEST(IntervalSetTest, CutsOutTheMiddle) {
  IntervalSet set({0, 100});
  set.Remove({40, 60});
  EXPECT_EQ(set.length(), 80);
  EXPECT_TRUE(set.Contains(39));
  EXPECT_FALSE(set.Contains(40));
  EXPECT_FALSE(set.Contains(59));
  EXPECT_TRUE(set.Contains(60));
  EXPECT_FALSE(set.Covers({30, 70}));
  EXPECT_TRUE(set.Covers({60, 100}));
  EXPECT_EQ(set.Overlap({30, 70}), 20);
  set.Remove({0, 100});
  EXPECT_TRUE(set.empty());
}

TEST(IntervalSetTest, AnInstantTouchesWhatContainsIt) {
  const IntervalSet set({10, 20});
  EXPECT_TRUE(set.Touches({10, 10}));
  EXPECT_FALSE(set.Touches({20, 20}));
  EXPECT_TRUE(set.Touches({5, 11}));
  EXPECT_FALSE(set.Touches({5, 10}));
}

TEST(IntervalSetTest, HoldsTheGreatestTimes) {
  IntervalSet set({0, ~uint64_t{0}});
  EXPECT_TRUE(set.Contains(~uint64_t{0} - 1));
  EXPECT_EQ(set.Overlap({~uint64_t{0} - 5, ~uint64_t{0}}), 5);
}

}  // namespace
}  // namespace xenprof::profile
