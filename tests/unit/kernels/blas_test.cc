// Expected events are those of a real H200 under torch 2.11.
#include <gtest/gtest.h>

#include "op_call.h"

namespace peakline {
namespace {

using test::call;
using test::kBf16;
using test::run;
using test::tensor;

TEST(Blas, ProductNeedsTheHandlesWorkspaceAfterItsResult) {
  const OpCall mm =
      call("aten::mm", {tensor({4096, 768}), tensor({768, 3072})}, {tensor({4096, 3072})});
  EXPECT_EQ(run(mm), "+50331648 W33554432");
}

TEST(Blas, WorkspaceIsSmallerOnOtherArchitectures) {
  const OpCall mm = call("aten::mm", {tensor({64, 64}), tensor({64, 64})}, {tensor({64, 64})});
  EXPECT_EQ(run(mm, *load_profile("a100-80")), "+16384 W8519680");
  EXPECT_EQ(run(mm, *load_profile("b200")), "+16384 W33554432");
}

TEST(Blas, WorkspaceFollowsTheEnvironment) {
  const OpCall mm = call("aten::mm", {tensor({64, 64}), tensor({64, 64})}, {tensor({64, 64})});
  KernelState state;
  state.cublas_workspace_config = ":4096:8";
  EXPECT_EQ(run(mm, test::h200(), state), "+16384 W33554432");
  state.cublas_workspace_config = ":16:8";
  EXPECT_EQ(run(mm, test::h200(), state), "+16384 W131072");
  state.cublas_workspace_config = "nonsense";
  EXPECT_EQ(run(mm, test::h200(), state), "+16384 W33554432");
}

TEST(Blas, BiasAsOneRowGoesThroughCublasLt) {
  const OpCall linear =
      call("aten::addmm",
           {tensor({3072}, kBf16), tensor({4096, 768}, kBf16), tensor({768, 3072}, kBf16, {1, 768}),
            std::int64_t{1}, std::int64_t{1}},
           {tensor({4096, 3072}, kBf16)});
  EXPECT_EQ(run(linear), "+25165824 W33554432 W1048576");
}

TEST(Blas, MatrixAddedAsAWholeDoesNot) {
  const OpCall addmm =
      call("aten::addmm",
           {tensor({64, 64}), tensor({64, 64}), tensor({64, 64}), std::int64_t{1}, std::int64_t{1}},
           {tensor({64, 64})});
  EXPECT_EQ(run(addmm), "+16384 W33554432");
}

TEST(Blas, MatrixThatCublasCannotReadIsCopied) {
  // Every second column of a wider matrix.
  const OpCall mm = call("aten::mm", {tensor({64, 32}, test::kFp32, {64, 2}), tensor({32, 16})},
                         {tensor({64, 16})});
  EXPECT_EQ(run(mm), "+4096 +8192 W33554432 -8192");
}

TEST(KernelMemory, UnknownOpAllocatesItsOutputsInOrder) {
  const OpCall op = call("my::op", {}, {tensor({8}), test::none(), tensor({4})});
  EXPECT_EQ(run(op), "+32 +16");
}

TEST(KernelMemory, ArgumentsOfAnotherKindCountAsNotGiven) {
  EXPECT_EQ(run(call("aten::mm", {std::string("x"), 3.0}, {tensor({2, 2})})), "+16 W33554432");
  EXPECT_EQ(run(call("aten::convolution_backward", {}, {})), "");
  EXPECT_EQ(run(call("aten::_cudnn_rnn", {}, {})).empty(), false);
  EXPECT_EQ(run(call("aten::topk", {}, {})), "");
}

}  // namespace
}  // namespace peakline
