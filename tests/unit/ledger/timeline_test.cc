#include "ledger/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "replayed.h"

namespace peakline {
namespace {

using testing::TraceBuilder;

Bytes sum(const CategoryArray& held) {
  Bytes out;
  for (const Bytes bytes : held) out += bytes;
  return out;
}

TEST(Timeline, OfAShortTraceHasOneBucketPerEvent) {
  TimelinePass pass;
  testing::play(TraceBuilder{}.alloc("a", 4_MiB).alloc("b", 1_MiB).free("a"), {&pass});
  const TimelineLevel level = pass.levels(DeviceId{}).at(0);
  ASSERT_EQ(level.buckets.size(), 3u);
  EXPECT_EQ(level.events_per_bucket, 1u);
  EXPECT_EQ(level.buckets[1].highest, 5_MiB);
  EXPECT_EQ(level.buckets[2].lowest, 1_MiB);
  EXPECT_EQ(sum(level.at_start[2]), 5_MiB);
}

TEST(Timeline, CategoriesAreThoseOfTheWholeLife) {
  TraceBuilder trace;
  trace.enter("Net").alloc("a", 4_MiB).leave("Net").phase_begin(Phase::kBackward).free("a");
  TimelinePass pass;
  testing::play(trace, {&pass});
  const TimelineLevel level = pass.levels(DeviceId{}).at(0);
  EXPECT_EQ(level.at_start[2][category::kActivation.raw()], 4_MiB);
}

TEST(Timeline, EachLevelHalvesTheOneBeforeAndKeepsThePeak) {
  TimelinePass pass;
  TraceBuilder trace;
  for (int i = 0; i < 1000; ++i) trace.alloc(std::to_string(i), Bytes(i == 500 ? 1'000'000 : 10));
  testing::play(trace, {&pass});
  const std::vector<TimelineLevel> levels = pass.levels(DeviceId{});
  ASSERT_GT(levels.size(), 5u);
  for (std::size_t i = 1; i < levels.size(); ++i) {
    EXPECT_EQ(levels[i].buckets.size(), (levels[i - 1].buckets.size() + 1) / 2);
    EXPECT_EQ(levels[i].buckets.back().highest, levels[0].buckets.back().highest);
  }
  EXPECT_EQ(levels.back().buckets.size(), 1u);
}

TEST(Timeline, StaysBoundedAndExactOverALongRandomRun) {
  std::mt19937 random(7);
  TraceBuilder trace;
  std::vector<std::string> live;
  std::vector<std::int64_t> totals;
  std::map<std::string, std::int64_t> sizes;
  std::int64_t total = 0;
  for (int i = 0; i < 50'000; ++i) {
    if (live.size() < 2 || random() % 2 == 0) {
      const std::string name = std::to_string(i);
      sizes[name] = static_cast<std::int64_t>(random() % 5000);
      total += sizes[name];
      trace.alloc(name, Bytes(sizes[name]));
      live.push_back(name);
    } else {
      std::swap(live[random() % live.size()], live.back());
      total -= sizes[live.back()];
      trace.free(live.back());
      live.pop_back();
    }
    totals.push_back(total);
  }
  TimelinePass pass;
  testing::play(trace, {&pass});
  const TimelineLevel level = pass.levels(DeviceId{}).at(0);
  ASSERT_LE(level.buckets.size(), TimelinePass::kMaxBuckets);
  ASSERT_GT(level.buckets.size(), TimelinePass::kMaxBuckets / 2);
  for (std::size_t i = 0; i < level.buckets.size(); ++i) {
    const std::size_t first = level.buckets[i].first_event;
    const std::size_t last = std::min(first + level.events_per_bucket, totals.size());
    const auto begin = totals.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = totals.begin() + static_cast<std::ptrdiff_t>(last);
    ASSERT_EQ(level.buckets[i].highest.raw(),
              std::max(*std::max_element(begin, end), first == 0 ? 0 : totals[first - 1]));
    ASSERT_EQ(sum(level.at_start[i]).raw(), first == 0 ? 0 : totals[first - 1]);
  }
}

TEST(Timeline, ADeviceThatAppearsLateStartsAtZero) {
  TraceBuilder trace;
  trace.device("cuda:0").alloc("a", 1_MiB).alloc("b", 1_MiB).device("cpu").alloc("c", 2_MiB);
  TimelinePass pass;
  testing::play(trace, {&pass});
  const TimelineLevel level = pass.levels(DeviceId(1)).at(0);
  ASSERT_EQ(level.buckets.size(), 3u);
  EXPECT_EQ(level.buckets[0].highest, 0_B);
  EXPECT_EQ(level.buckets[2].highest, 2_MiB);
}

}  // namespace
}  // namespace peakline
