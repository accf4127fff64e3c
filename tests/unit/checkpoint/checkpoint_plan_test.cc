#include <gtest/gtest.h>

#include <peakline/checkpoint_plan.h>

namespace peakline {
namespace {

TEST(FitPieces, TwoLinesAreFoundWithTheirBreak) {
  std::vector<double> x;
  std::vector<double> y;
  for (int i = 0; i <= 40; ++i) {
    x.push_back(i / 40.0);
    y.push_back(x.back() < 0.6 ? 0.1 * x.back() : 0.06 + 2 * (x.back() - 0.6));
  }
  const auto pieces = fit_pieces(x, y, 2);
  ASSERT_TRUE(pieces.ok());
  EXPECT_NEAR(pieces->breaks[1], 0.6, 0.01);
  EXPECT_NEAR(pieces->slopes[0], 0.1, 0.02);
  EXPECT_NEAR(pieces->slopes[1], 2.0, 0.02);
  EXPECT_NEAR(pieces->slopes[1] * 1 + pieces->intercepts[1], y.back(), 0.01);
}

TEST(FitPieces, PiecesAreJoined) {
  const std::vector<double> x{0, 0.1, 0.3, 0.5, 0.6, 0.9, 1};
  const std::vector<double> y{0, 0, 0.1, 0.1, 0.4, 0.5, 1};
  const auto pieces = fit_pieces(x, y, 3);
  ASSERT_TRUE(pieces.ok());
  for (int i = 0; i < 2; ++i) {
    const double at = pieces->breaks[static_cast<std::size_t>(i) + 1];
    const auto value = [&](int piece) {
      const auto p = static_cast<std::size_t>(piece);
      return pieces->slopes[p] * at + pieces->intercepts[p];
    };
    EXPECT_NEAR(value(i), value(i + 1), 1e-9);
  }
}

TEST(FitPieces, ACurveOfOnePointIsRefused) { EXPECT_FALSE(fit_pieces({1}, {1}, 1).ok()); }

CheckpointProblem two_layers() {
  CheckpointProblem problem;
  CheckpointNode root;
  root.subtree_end = 3;
  root.post_position = 2;
  root.act_total = 200;
  CheckpointNode layer;
  layer.may_checkpoint = true;
  layer.memory = 120;
  layer.saved = 100;
  layer.runtime = 10;
  layer.slopes = {1};
  layer.intercepts = {0};
  CheckpointNode second = layer;
  layer.subtree_end = 2;
  layer.post_position = 0;
  layer.act_total = 100;
  second.subtree_end = 3;
  second.post_position = 1;
  second.act_total = 200;
  problem.nodes = {root, layer, second};
  problem.budget = 1000;
  return problem;
}

TEST(CheckPlan, DiscardedMemoryLowersThePeakOfWhatComesLater) {
  const auto cost = check_plan(two_layers(), {0, 1, 0});
  ASSERT_TRUE(cost.ok());
  EXPECT_DOUBLE_EQ(cost->recompute_ms, 10);
  EXPECT_DOUBLE_EQ(cost->peak, 100);
}

TEST(CheckPlan, WhatIsNoPlanIsNamed) {
  CheckpointProblem problem = two_layers();
  EXPECT_FALSE(check_plan(problem, {1, 0, 0}).ok());     // may not
  EXPECT_FALSE(check_plan(problem, {0, 0.05, 0}).ok());  // saves nothing
  problem.nodes[0].may_checkpoint = true;
  EXPECT_FALSE(check_plan(problem, {1, 1, 0}).ok());  // nested
  problem.budget = 50;
  EXPECT_FALSE(check_plan(problem, {0, 1, 0}).ok());  // too much
}

TEST(CheckChoices, GroupsGoTogetherAndTheBudgetHolds) {
  OpChoices ops;
  ops.memory = {10, 20, 0};
  ops.runtime = {1, 2, 3};
  ops.fixed = {-1, -1, 1};
  ops.equal = {{0, 1}};
  ops.budget = 30;
  EXPECT_DOUBLE_EQ(*check_choices(ops, {0, 0, 1}), 3);
  EXPECT_FALSE(check_choices(ops, {1, 0, 1}).ok());
  EXPECT_FALSE(check_choices(ops, {1, 1, 0}).ok());
  ops.budget = 29;
  EXPECT_FALSE(check_choices(ops, {1, 1, 1}).ok());
}

}  // namespace
}  // namespace peakline
