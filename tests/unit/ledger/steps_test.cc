#include "ledger/steps.h"

#include <gtest/gtest.h>

#include "replayed.h"

namespace peakline {
namespace {

using testing::TraceBuilder;

std::vector<std::int64_t> mebibytes(const StepsPass& pass, std::size_t device = 0) {
  std::vector<std::int64_t> out;
  for (const StepPeak& step : pass.steps().at(device)) out.push_back(step.allocated.raw() >> 20);
  return out;
}

TEST(Steps, EachHasItsOwnPeak) {
  TraceBuilder trace;
  trace.alloc("w", 1_MiB).alloc("a", 4_MiB).free("a").step();
  trace.alloc("a", 9_MiB).free("a").step().alloc("a", 2_MiB).free("a").step();
  StepsPass pass;
  testing::play(trace, {&pass});
  EXPECT_EQ(mebibytes(pass), (std::vector<std::int64_t>{5, 10, 3}));
  EXPECT_EQ(pass.completed(), 3u);
}

TEST(Steps, AStepThatAllocatesNothingHoldsWhatWasThere) {
  StepsPass pass;
  testing::play(TraceBuilder{}.alloc("w", 3_MiB).step().step(), {&pass});
  EXPECT_EQ(mebibytes(pass), (std::vector<std::int64_t>{3, 3}));
}

TEST(Steps, WhatFollowsTheLastStepHasARowWhenItAllocates) {
  StepsPass pass;
  testing::play(TraceBuilder{}.alloc("w", 3_MiB).step().alloc("a", 1_MiB), {&pass});
  EXPECT_EQ(mebibytes(pass), (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(pass.completed(), 1u);
}

TEST(Steps, ADeviceThatAppearsLateHeldNothingBefore) {
  TraceBuilder trace;
  trace.device("cuda:0").alloc("a", 1_MiB).step().device("cuda:1").alloc("b", 2_MiB).step();
  StepsPass pass;
  testing::play(trace, {&pass});
  EXPECT_EQ(mebibytes(pass, 1), (std::vector<std::int64_t>{0, 2}));
}

TEST(Steps, ReservedHasItsOwnPeak) {
  TraceBuilder trace;
  trace.alloc("a", 1_MiB).segment_alloc(1, 20_MiB).segment_free(1, 20_MiB).step();
  trace.segment_alloc(2, 2_MiB).step();
  StepsPass pass;
  testing::play(trace, {&pass});
  EXPECT_EQ(pass.steps()[0][0].reserved, 20_MiB);
  EXPECT_EQ(pass.steps()[0][1].reserved, 2_MiB);
}

}  // namespace
}  // namespace peakline
