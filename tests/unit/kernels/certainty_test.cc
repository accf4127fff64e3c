// How sure an op's allocations are, by who knows them: torch's declarations, a list, a rule, nobody.
#include <gtest/gtest.h>

#include "op_call.h"

namespace peakline {
namespace {

using test::call;
using test::tensor;

Certainty certainty(const OpCall& op, const char* gpu = "h200", const char* torch = "2.11") {
  KernelState state;
  state.torch = torch;
  return allocation_program(op, *load_profile(gpu), state).certainty;
}

TEST(OpCertainty, ResultsOfAnOpThatNobodyKnowsAreOutputsOnly) {
  const TensorMeta x = tensor({64});
  EXPECT_EQ(certainty(call("aten::_fft_r2c", {x}, {x})), Certainty::kOutputsOnly);
  EXPECT_EQ(certainty(call("aten::some_new_op", {x}, {x})), Certainty::kOutputsOnly);
  EXPECT_EQ(certainty(call("mine::cat", {x}, {x})), Certainty::kOutputsOnly);
}

TEST(OpCertainty, WhatTorchDeclaresAsALoopOverElementsIsExact) {
  const TensorMeta x = tensor({64});
  OpCall op = call("aten::some_new_op", {x}, {x});
  op.elementwise = true;
  EXPECT_EQ(certainty(op), Certainty::kExact);
}

TEST(OpCertainty, ListedOpsAreExactWhereTheirInputsAreDense) {
  const TensorMeta x = tensor({2, 3, 8, 8});
  const TensorMeta turned = tensor({2, 3, 8, 8}, test::kFp32, {192, 64, 1, 8});
  EXPECT_EQ(certainty(call("aten::gather", {turned, x}, {x})), Certainty::kExact);
  EXPECT_EQ(certainty(call("aten::avg_pool2d", {x}, {x})), Certainty::kExact);
  EXPECT_EQ(certainty(call("aten::avg_pool2d", {test::channels_last({2, 3, 8, 8})}, {x})),
            Certainty::kExact);
}

TEST(OpCertainty, ListedOpsCopyInputsThatAreNotDense) {
  const TensorMeta x = tensor({2, 3, 8, 8});
  const TensorMeta turned = tensor({2, 3, 8, 8}, test::kFp32, {192, 64, 1, 8});
  const OpCall op = call("aten::avg_pool2d", {turned}, {x});
  EXPECT_EQ(certainty(op), Certainty::kModelled);
  EXPECT_EQ(test::run(op), "+1536 +1536 -1536");
}

// Contiguous calls agree to the byte; what channels-last ones take beside the results is modelled.
TEST(OpCertainty, CudnnsBatchNormIsExactForContiguousPicturesAlone) {
  const TensorMeta x = tensor({2, 3, 8, 8});
  const TensorMeta turned = test::channels_last({2, 3, 8, 8});
  const auto trained = [](const TensorMeta& pictures) {
    const TensorMeta c = tensor({3});
    return call("aten::cudnn_batch_norm", {pictures, c, c, c, c, true}, {pictures});
  };
  EXPECT_EQ(certainty(trained(x)), Certainty::kExact);
  EXPECT_EQ(certainty(trained(turned)), Certainty::kModelled);
}

TEST(OpCertainty, RulesAreAtMostModelledWhereTheyWereNeverMeasured) {
  const TensorMeta x = tensor({64, 64});
  const OpCall product = call("aten::mm", {x, x}, {x});
  EXPECT_EQ(certainty(product), Certainty::kExact);
  EXPECT_EQ(certainty(product, "a100-80"), Certainty::kModelled);
  EXPECT_EQ(certainty(product, "h200", "2.13"), Certainty::kModelled);
  EXPECT_EQ(certainty(product, "h200", "2.1"), Certainty::kModelled);
}

TEST(OpCertainty, ResultsStayExactWhereOnlyTheScratchIsModelled) {
  const TensorMeta x = tensor({64, 64});
  const auto steps =
      allocation_program(call("aten::mm", {x, x}, {x}), *load_profile("a100-80"), {}).steps;
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].certainty, Certainty::kExact);
  EXPECT_EQ(steps[1].certainty, Certainty::kModelled);
}

}  // namespace
}  // namespace peakline
