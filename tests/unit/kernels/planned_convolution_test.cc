// Convolutions whose kernels cuDNN tells, with a stand-in for cuDNN that remembers what it was asked.
#include <gtest/gtest.h>

#include <peakline/conv_planner.h>

#include "op_call.h"

namespace peakline {
namespace {

using test::call;
using test::channels_last;
using test::kBf16;
using test::kFp32;
using test::Sizes;
using test::tensor;

// Passes need 1000, 2000 and 3000 bytes.
class FakePlanner final : public ConvPlanner {
 public:
  std::optional<ConvPlan> plan(const ConvQuery& query) override {
    asked.push_back(query);
    if (knows_nothing) return std::nullopt;
    ConvPlan made;
    if (!needs_nothing) made.workspace = 1000 * (1 + static_cast<std::int64_t>(query.pass));
    made.unsplit_workspace = made.workspace;
    made.knobs = knobs;
    return made;
  }
  PlannerStatus status() override { return {PlannerStatus::State::kWorks, version, ""}; }

  std::string version = "9.19.0";
  std::vector<ConvQuery> asked;
  std::map<std::string, std::int64_t> knobs{{"KBLOCK", 2}};
  bool knows_nothing = false;
  bool needs_nothing = false;
};

class PlannedConvolution : public testing::Test {
 protected:
  AllocationProgram program(const OpCall& op) {
    state.conv_planner = &planner;
    return allocation_program(op, test::h200(), state);
  }
  std::string run(const OpCall& op) {
    state.conv_planner = &planner;
    return test::run(op, test::h200(), state);
  }
  std::vector<ConvPass> passes() const {
    std::vector<ConvPass> found;
    for (const ConvQuery& query : planner.asked) found.push_back(query.pass);
    return found;
  }

  FakePlanner planner;
  KernelState state;
};

OpCall forward(const TensorMeta& x, const TensorMeta& w, const TensorMeta& y,
               bool transposed = false, std::int64_t groups = 1) {
  OpCall made = call(transposed ? "aten::cudnn_convolution_transpose" : "aten::cudnn_convolution",
                     {x, w}, {y});
  made.convolution = test::convolution(x.sizes.size() - 2, 2, 1, 3, groups);
  made.convolution->transposed = transposed;
  return made;
}

OpCall backward(const TensorMeta& x, const TensorMeta& w, const TensorMeta& y,
                bool transposed = false, std::int64_t groups = 1) {
  OpCall made = call("aten::convolution_backward",
                     {y, x, w, std::monostate{}, Sizes{2, 2}, Sizes{1, 1}, Sizes{1, 1}, transposed,
                      Sizes{0, 0}, groups, std::vector<bool>{true, true, false}},
                     {x, w, test::none()});
  made.convolution = test::convolution(2, 2, 1, 1, groups);
  made.convolution->transposed = transposed;
  made.convolution->channels_last = !x.contiguous();
  return made;
}

TEST_F(PlannedConvolution, TheForwardPassTakesWhatCudnnSaysAndIsSureOfIt) {
  const TensorMeta x = tensor({2, 16, 8, 8});
  const OpCall op = forward(x, tensor({16, 16, 3, 3}), x);
  EXPECT_EQ(run(op), "+8192 +1000 -1000");
  EXPECT_EQ(program(op).certainty, Certainty::kExact);
}

TEST_F(PlannedConvolution, TheBackwardPassAsksForEachGradientOfItsOwn) {
  const TensorMeta x = tensor({2, 16, 8, 8});
  const OpCall op = backward(x, tensor({16, 16, 3, 3}), x);
  EXPECT_EQ(run(op), "+8192 +2000 -2000 +9216 +3000 -3000");
  EXPECT_EQ(passes(), (std::vector{ConvPass::kInputGradient, ConvPass::kWeightGradient}));
  EXPECT_EQ(program(op).certainty, Certainty::kExact);
}

TEST_F(PlannedConvolution, AModelledSplitIsNotCalledExact) {
  planner.knobs = {
      {"TILE_SIZE", 0}, {"TILEK", 0}, {"TILE_CGA_M", 1}, {"TILE_CGA_N", 1}, {"WORKSPACE", 0}};
  const TensorMeta x = tensor({2, 16, 8, 8});
  EXPECT_EQ(program(forward(x, tensor({16, 16, 3, 3}), x)).certainty, Certainty::kModelled);
}

TEST_F(PlannedConvolution, BenchmarkingMayTakeAnotherKernelThanTheFirst) {
  const TensorMeta x = tensor({2, 16, 8, 8});
  OpCall op = forward(x, tensor({16, 16, 3, 3}), x);
  op.convolution->benchmark = true;
  EXPECT_EQ(program(op).certainty, Certainty::kGuessed);
}

TEST_F(PlannedConvolution, SizesAndSettingsArriveAsCudnnIsGivenThem) {
  const TensorMeta x = tensor({2, 16, 9, 7}, kBf16);
  const TensorMeta w = tensor({32, 8, 3, 3}, kBf16);
  const TensorMeta y = tensor({2, 32, 3, 2}, kBf16);
  (void)run(forward(x, w, y, false, 2));
  ASSERT_EQ(planner.asked.size(), 1U);
  const ConvQuery& query = planner.asked[0];
  EXPECT_EQ(query.pass, ConvPass::kForward);
  EXPECT_EQ(query.dtype, kBf16);
  EXPECT_EQ(query.input, x.sizes);
  EXPECT_EQ(query.weight, w.sizes);
  EXPECT_EQ(query.output, y.sizes);
  EXPECT_EQ(query.stride, (Sizes{2, 2}));
  EXPECT_EQ(query.padding, (Sizes{1, 1}));
  EXPECT_EQ(query.dilation, (Sizes{3, 3}));
  EXPECT_FALSE(query.channels_last);
}

TEST_F(PlannedConvolution, LayoutAndSwitchesArrive) {
  const TensorMeta x = tensor({2, 16, 8, 8});
  OpCall op = forward(x, tensor({16, 16, 3, 3}), x);
  (void)run(op);
  op.convolution->channels_last = true;
  op.convolution->allow_tf32 = false;
  op.convolution->deterministic = true;
  (void)run(op);
  ASSERT_EQ(planner.asked.size(), 2U);
  EXPECT_TRUE(planner.asked[0].allow_tf32);
  EXPECT_FALSE(planner.asked[0].deterministic);
  EXPECT_FALSE(planner.asked[0].channels_last);
  EXPECT_FALSE(planner.asked[1].allow_tf32);
  EXPECT_TRUE(planner.asked[1].deterministic);
  EXPECT_TRUE(planner.asked[1].channels_last);
}

TEST_F(PlannedConvolution, PlansOfACudnnThatWasNeverMeasuredAreNotCalledExact) {
  const TensorMeta x = tensor({2, 16, 8, 8});
  const OpCall op = forward(x, tensor({16, 16, 3, 3}), x);
  for (const char* version : {"9.20.0", "9.1.9", ""}) {
    planner.version = version;
    EXPECT_EQ(program(op).certainty, Certainty::kModelled) << version;
  }
}

TEST_F(PlannedConvolution, ATransposedConvolutionIsThePlainOneFromTheOtherSide) {
  const TensorMeta x = tensor({2, 32, 4, 4});
  const TensorMeta w = tensor({32, 16, 3, 3});
  const TensorMeta y = tensor({2, 16, 8, 8});
  EXPECT_EQ(run(forward(x, w, y, true)), "+8192 +2000 -2000");
  EXPECT_EQ(run(backward(x, w, y, true)), "+4096 +1000 -1000 +18432 +3000 -3000");
  EXPECT_EQ(passes(),
            (std::vector{ConvPass::kInputGradient, ConvPass::kForward, ConvPass::kWeightGradient}));
  for (const ConvQuery& query : planner.asked) {
    EXPECT_EQ(query.input, y.sizes);
    EXPECT_EQ(query.output, x.sizes);
    EXPECT_EQ(query.weight, w.sizes);
  }
}

TEST_F(PlannedConvolution, LinesArePicturesOfOneRow) {
  (void)run(forward(tensor({2, 16, 64}), tensor({32, 16, 5}), tensor({2, 32, 27})));
  ASSERT_EQ(planner.asked.size(), 1U);
  const ConvQuery& query = planner.asked[0];
  EXPECT_EQ(query.input, (Sizes{2, 16, 1, 64}));
  EXPECT_EQ(query.weight, (Sizes{32, 16, 1, 5}));
  EXPECT_EQ(query.output, (Sizes{2, 32, 1, 27}));
  EXPECT_EQ(query.padding, (Sizes{0, 1}));
  EXPECT_EQ(query.stride, (Sizes{1, 2}));
  EXPECT_EQ(query.dilation, (Sizes{1, 3}));
}

TEST_F(PlannedConvolution, VolumesKeepTheirThreeDimensions) {
  const TensorMeta x = tensor({2, 16, 8, 8, 8});
  (void)run(forward(x, tensor({16, 16, 3, 3, 3}), x));
  ASSERT_EQ(planner.asked.size(), 1U);
  EXPECT_EQ(planner.asked[0].input, x.sizes);
  EXPECT_EQ(planner.asked[0].stride, (Sizes{2, 2, 2}));
}

TEST_F(PlannedConvolution, DepthwiseHalfWeightGradientsAreNotAsked) {
  const TensorMeta x = channels_last({8, 64, 16, 16}, kBf16);
  (void)run(backward(x, channels_last({64, 1, 3, 3}, kBf16), x, false, 64));
  for (const ConvQuery& query : planner.asked) {
    EXPECT_NE(query.pass, ConvPass::kWeightGradient);
  }
}

// cuBLASLt runs it, and splits the sum in a way that cuDNN does not tell.
TEST_F(PlannedConvolution, AWeightGradientThatIsOneProductMayTakeMoreThanThePlanSays) {
  const TensorMeta x = channels_last({16, 64, 32, 32});
  const TensorMeta w = channels_last({64, 64, 1, 1});
  OpCall op = call("aten::convolution_backward",
                   {x, x, w, std::monostate{}, Sizes{1, 1}, Sizes{0, 0}, Sizes{1, 1}, false,
                    Sizes{0, 0}, std::int64_t{1}, std::vector<bool>{false, true, false}},
                   {test::none(), w, test::none()});
  op.convolution = test::convolution(2, 1, 0);
  op.convolution->channels_last = true;
  planner.needs_nothing = true;
  planner.knobs = {{"WORKSPACE", 1}};
  EXPECT_EQ(run(op), "+16384");
  planner.knobs = {{"WORKSPACE", 2}};
  EXPECT_NE(run(op), "+16384");
  EXPECT_EQ(program(op).certainty, Certainty::kGuessed);
}

TEST_F(PlannedConvolution, WithoutAPlanTheRulesEstimate) {
  const TensorMeta x = tensor({32, 512, 7, 7}, kBf16);
  const OpCall op = forward(x, tensor({512, 512, 3, 3}, kBf16), x);
  planner.knows_nothing = true;
  EXPECT_EQ(run(op), test::run(op));
  EXPECT_EQ(planner.asked.size(), 1U);
  EXPECT_EQ(program(op).certainty, allocation_program(op, test::h200(), {}).certainty);
}

TEST_F(PlannedConvolution, WhatTorchComputesItselfNobodyIsAskedFor) {
  const TensorMeta x = tensor({2, 16, 8, 8});
  for (const auto backend : {Convolution::Backend::kDepthwise, Convolution::Backend::kColumns}) {
    OpCall op = backward(x, tensor({16, 16, 3, 3}), x);
    op.convolution->backend = backend;
    (void)run(op);
  }
  EXPECT_TRUE(planner.asked.empty());
}

}  // namespace
}  // namespace peakline
