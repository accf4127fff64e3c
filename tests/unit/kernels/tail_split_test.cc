// Expected workspaces are those of a real H200 with cuDNN 9.19; the plans are what that cuDNN answers
// without one.
#include "kernels/tail_split.h"

#include <gtest/gtest.h>

#include <random>

#include <peakline/kernel_memory.h>

#include "op_call.h"

namespace peakline::kernels {
namespace {

using Sizes = std::vector<std::int64_t>;

TiledProduct one_tile_of_floats(std::int64_t steps) {
  TiledProduct p;
  p.tiles = 1;
  p.steps = steps;
  p.step_size = 32;
  return p;
}

TiledProduct one_tile_of_halves(std::int64_t steps) {
  TiledProduct p;
  p.tiles = 1;
  p.steps = steps;
  return p;
}

TEST(TailSplit, ALoneTileIsSplitWhenThatSavesMoreThanAddingCosts) {
  EXPECT_EQ(parts_of_last_tiles(one_tile_of_floats(27)), 1);
  EXPECT_EQ(parts_of_last_tiles(one_tile_of_floats(28)), 2);
  EXPECT_EQ(parts_of_last_tiles(one_tile_of_floats(55)), 4);
}

TEST(TailSplit, StepsOfTwiceTheElementsAreWorthSplittingWhenHalfAsMany) {
  EXPECT_EQ(parts_of_last_tiles(one_tile_of_halves(13)), 1);
  EXPECT_EQ(parts_of_last_tiles(one_tile_of_halves(14)), 2);
}

TEST(TailSplit, LongSumsHaveOnePartPerThousandElementsUpTo128) {
  EXPECT_EQ(parts_of_last_tiles(one_tile_of_floats(1089)), 33);
  EXPECT_EQ(parts_of_last_tiles(one_tile_of_floats(16384)), 128);
  EXPECT_EQ(parts_of_last_tiles(one_tile_of_floats(1 << 20)), 128);
  EXPECT_EQ(parts_of_last_tiles(one_tile_of_halves(153)), 9);
}

TEST(TailSplit, BFloat16IsSplitOnlyForEightTimesTheSaving) {
  TiledProduct p = one_tile_of_halves(14);
  p.bfloat16 = true;
  EXPECT_EQ(parts_of_last_tiles(p), 1);
  p.steps = 105;
  EXPECT_EQ(parts_of_last_tiles(p), 1);
  p.steps = 106;
  EXPECT_EQ(parts_of_last_tiles(p), 2);
}

TEST(TailSplit, SmallTilesAreAddedAtAHigherPriceForEachElementOfTheSum) {
  TiledProduct p = one_tile_of_floats(28);
  p.tile_area = 4096;
  EXPECT_EQ(parts_of_last_tiles(p), 1);
  p.steps = 50;
  EXPECT_EQ(parts_of_last_tiles(p), 2);
  p.tile_area = 32768;
  p.steps = 24;
  EXPECT_EQ(parts_of_last_tiles(p), 2);
}

TEST(TailSplit, NothingIsSplitWhenNoTileIsLeftForALastRound) {
  TiledProduct p = one_tile_of_floats(16384);
  p.tiles = 132;
  EXPECT_EQ(parts_of_last_tiles(p), 1);
  p.tiles = 5 * 132;
  EXPECT_EQ(parts_of_last_tiles(p), 1);
}

TEST(TailSplit, NothingIsSplitWhenTheLastRoundFillsMoreThanHalfTheGpu) {
  TiledProduct p = one_tile_of_floats(16384);
  p.tiles = 66;
  EXPECT_EQ(parts_of_last_tiles(p), 2);
  p.tiles = 67;
  EXPECT_EQ(parts_of_last_tiles(p), 1);
  p.tiles = 132 + 67;
  EXPECT_EQ(parts_of_last_tiles(p), 1);
}

TEST(TailSplit, AfterFullRoundsPartsComeInTwosFoursAndEightsUntilTheSumIsLong) {
  const auto parts = [](std::int64_t steps) {
    TiledProduct p = one_tile_of_floats(steps);
    p.tiles = 132 + 1;
    return parts_of_last_tiles(p);
  };
  EXPECT_EQ(parts(13), 1);  // 416 elements; adding costs 423
  EXPECT_EQ(parts(14), 2);
  EXPECT_EQ(parts(26), 2);
  EXPECT_EQ(parts(27), 4);
  EXPECT_EQ(parts(42), 7);  // eight parts of six steps would be one too many
  EXPECT_EQ(parts(48), 8);
  EXPECT_EQ(parts(60), 15);  // 1920 elements, no part shorter than 128
}

TEST(TailSplit, ASumOfNoStepsIsNotSplit) {
  EXPECT_EQ(parts_of_last_tiles(one_tile_of_floats(0)), 1);
  EXPECT_EQ(parts_of_last_tiles(one_tile_of_floats(-1)), 1);
}

TEST(TailSplit, PartsFitTheGpuAndTheSumForRandomProducts) {
  std::mt19937 random(7);
  const auto below = [&random](std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
  };
  constexpr std::array<std::int64_t, 6> kAreas{4096, 8192, 12288, 16384, 24576, 32768};
  constexpr std::array<std::int64_t, 4> kAtOnce{1, 78, 120, 132};
  for (int i = 0; i < 20000; ++i) {
    TiledProduct p;
    p.tiles = 1 + below(1000);
    p.steps = 1 + below(i % 2 == 0 ? 100 : 20000);
    p.step_size = below(2) == 0 ? 32 : 64;
    p.tile_area = kAreas[static_cast<std::size_t>(below(6))];
    p.at_once = kAtOnce[static_cast<std::size_t>(below(4))];
    p.bfloat16 = below(2) == 0;
    const std::int64_t parts = parts_of_last_tiles(p);
    ASSERT_GE(parts, 1);
    ASSERT_LE(parts, p.steps);
    ASSERT_LE(p.tiles % p.at_once * parts, p.at_once) << p.tiles << " tiles, " << p.steps;
  }
}

ConvQuery square(DType dtype, Sizes input, std::int64_t outputs, std::int64_t window,
                 std::int64_t stride = 1) {
  ConvQuery q;
  q.dtype = dtype;
  q.padding = Sizes(2, window / 2);
  q.stride = Sizes(2, stride);
  q.dilation = {1, 1};
  q.weight = {outputs, input[1], window, window};
  q.output = {input[0], outputs, input[2] / stride, input[3] / stride};
  q.input = std::move(input);
  return q;
}

ConvPlan plan(std::int64_t engine, std::int64_t unsplit,
              std::map<std::string, std::int64_t> knobs) {
  return {engine, unsplit, unsplit, std::move(knobs)};
}

std::map<std::string, std::int64_t> knobs(std::int64_t tile, std::int64_t step, std::int64_t high,
                                          std::int64_t wide, std::int64_t workspace) {
  return {{"IDX_MODE", 0},      {"TILEK", step},     {"TILE_CGA_M", high},
          {"TILE_CGA_N", wide}, {"TILE_SIZE", tile}, {"WORKSPACE", workspace}};
}

TEST(PlannedWorkspace, APlanOfAKernelWithoutClustersIsTakenAsItIs) {
  const ConvQuery q = square(DType::kFloat32, {8, 64, 80, 80}, 96, 3);
  const auto found = planned_workspace(
      q, plan(58, 32989200, {{"KBLOCK", 2}, {"STAGES", 3}, {"TILE_SIZE", 4}}), test::h200());
  EXPECT_EQ(found.bytes, 32989200);
  EXPECT_TRUE(found.exact);
}

TEST(PlannedWorkspace, TilesThatAllRunAtOnceNeedNoCounter) {
  const ConvQuery q = square(DType::kFloat32, {12, 384, 14, 14}, 768, 1, 2);
  const auto found = planned_workspace(q, plan(67, 5419155, knobs(5, 0, 1, 8, 1)), test::h200());
  EXPECT_EQ(found.bytes, 5419024);
  EXPECT_TRUE(found.exact);
}

TEST(PlannedWorkspace, TilesThatDoNotAllRunAtOnceTakeTheNextFromACounter) {
  const ConvQuery q = square(DType::kFloat32, {8, 64, 80, 80}, 96, 3);
  const auto found = planned_workspace(q, plan(67, 32989331, knobs(7, 0, 8, 1, 1)), test::h200());
  EXPECT_EQ(found.bytes, 32989331);
  EXPECT_TRUE(found.exact);
}

TEST(PlannedWorkspace, AnUnknownTileIsNotSplitAndNotExact) {
  const ConvQuery q = square(DType::kFloat16, {8, 512, 24, 24}, 512, 3);
  ConvPlan p = plan(62, 14155923, knobs(999, 1, 1, 2, 0));
  p.workspace = 20000000;
  const auto found = planned_workspace(q, p, test::h200());
  EXPECT_EQ(found.bytes, 14155923);
  EXPECT_FALSE(found.exact);
}

// Forward passes; a split is modelled, so it is not called exact even where it is.
TEST(PlannedWorkspace, SplitLastRoundsAreWithinAKibibyteOfTheMeasuredOnes) {
  constexpr std::int64_t kSlack = 1024;
  const auto bytes = [](const ConvQuery& q, const ConvPlan& p) {
    const auto found = planned_workspace(q, p, test::h200());
    EXPECT_FALSE(found.exact);
    return found.bytes;
  };
  EXPECT_NEAR(bytes(square(DType::kFloat16, {8, 512, 24, 24}, 512, 3),
                    plan(62, 14155923, knobs(0, 1, 1, 2, 0))),
              22807279, kSlack);
  EXPECT_NEAR(bytes(square(DType::kFloat32, {24, 256, 20, 20}, 256, 3),
                    plan(67, 22020243, knobs(9, 0, 4, 1, 0))),
              28312111, kSlack);
  EXPECT_NEAR(bytes(square(DType::kFloat32, {16, 128, 40, 40}, 192, 3),
                    plan(67, 131, knobs(9, 0, 4, 1, 0))),
              7864963, kSlack);
}

// On fewer SMs other tiles are left, and another number of them fits.
TEST(PlannedWorkspace, TheSplitDependsOnHowManySmsThereAre) {
  DeviceProfile smaller = test::h200();
  smaller.sm_count = 78;
  const ConvQuery q = square(DType::kFloat16, {8, 512, 24, 24}, 512, 3);
  const ConvPlan p = plan(62, 14155923, knobs(0, 1, 1, 2, 0));
  EXPECT_NE(planned_workspace(q, p, smaller).bytes, planned_workspace(q, p, test::h200()).bytes);
}

TEST(PlannedWorkspace, AnyKnobsAndAnyGpuGiveAWorkspaceNoSmallerThanWithoutTheCounter) {
  std::mt19937 random(11);
  const auto below = [&random](std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
  };
  for (int i = 0; i < 5000; ++i) {
    ConvQuery q = square(static_cast<DType>(below(3)), {1 + below(64), 1 + below(600), 32, 32},
                         1 + below(600), 1 + 2 * below(3));
    q.pass = static_cast<ConvPass>(below(3));
    DeviceProfile gpu = test::h200();
    gpu.sm_count = static_cast<int>(1 + below(200));
    const ConvPlan p = plan(67, 131 + 16 * below(1000),
                            knobs(below(24), below(2), 1 + below(8), 1 + below(8), below(2)));
    ASSERT_GE(planned_workspace(q, p, gpu).bytes, p.unsplit_workspace - 131);
  }
}

}  // namespace
}  // namespace peakline::kernels
