// Expected events are those of a real H200 under torch 2.11.
#include <gtest/gtest.h>

#include <set>

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

TEST(Blas, WorkspacesFollowTheEnvironmentAsTorchReadsIt) {
  const auto cublas = [](const char* config, const char* gpu = "h200") {
    return blas_workspaces(*load_profile(gpu), {config, "", ""}).cublas.raw();
  };
  EXPECT_EQ(cublas(":4096:8"), 32 << 20);
  EXPECT_EQ(cublas(":16:8"), 131072);
  EXPECT_EQ(cublas(":4096:2:16:8"), 8519680);
  EXPECT_EQ(cublas("first :4096:2, then :16:8"), 8519680);
  EXPECT_EQ(cublas("4096:2"), 32 << 20);
  EXPECT_EQ(cublas("nonsense"), 32 << 20);
  EXPECT_EQ(cublas(":99999999999999999999:2"), 32 << 20);
  EXPECT_EQ(cublas("", "a100-80"), 8519680);
  EXPECT_EQ(cublas(":0:0"), 0);
  EXPECT_EQ(blas_workspaces(test::h200()).cublaslt.raw(), 1 << 20);
  EXPECT_EQ(blas_workspaces(test::h200(), {"", "2048", ""}).cublaslt.raw(), 2 << 20);
  EXPECT_EQ(blas_workspaces(test::h200(), {"", "x", ""}).cublaslt.raw(), 1 << 20);
  EXPECT_TRUE(blas_workspaces(test::h200(), {"", "", "1"}).unified);
}

TEST(Blas, WorkspacesAreThoseOfTheState) {
  const OpCall mm = call("aten::mm", {tensor({64, 64}), tensor({64, 64})}, {tensor({64, 64})});
  KernelState state;
  state.blas = BlasWorkspaces{Bytes(4096), Bytes(2048), false};
  EXPECT_EQ(run(mm, test::h200(), state), "+16384 W4096");
  state.switches.prefers_cublaslt = true;
  EXPECT_EQ(run(mm, test::h200(), state), "+16384 W4096 W2048");
  state.blas->unified = true;
  EXPECT_EQ(run(mm, test::h200(), state), "+16384 W4096");
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

TEST(KernelSwitches, EachOfThemIsInTheirWord) {
  std::vector<KernelSwitches> all(8);
  all[1].cudnn_enabled = false;
  all[2].cudnn_benchmark = true;
  all[3].cudnn_deterministic = true;
  all[4].cudnn_allow_tf32 = false;
  all[5].deterministic_algorithms = true;
  all[6].prefers_cublaslt = true;
  all[7].cudnn_depthwise = 2;
  std::set<std::uint64_t> words;
  for (const KernelSwitches& switches : all) words.insert(switches.word());
  EXPECT_EQ(words.size(), all.size());
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
