// Expected events are those of a real H200 under torch 2.11.
#include <gtest/gtest.h>

#include "op_call.h"

namespace peakline {
namespace {

using test::call;
using test::kBf16;
using test::run;
using test::Sizes;
using test::tensor;

OpCall sum(TensorMeta input, Sizes dims, TensorMeta output) {
  return call("aten::sum", {std::move(input), std::move(dims), false, std::monostate{}},
              {std::move(output)}, "dim_IntList");
}

TEST(Reduction, BiasGradientsStagePartialSumsPerBlock) {
  EXPECT_EQ(run(sum(tensor({4096, 3072}, kBf16), {0}, tensor({3072}, kBf16))),
            "+6144 +100663296 +96 -96 -100663296");
  EXPECT_EQ(run(sum(tensor({8192, 8192}), {0}, tensor({8192}))),
            "+32768 +138412032 +256 -256 -138412032");
  EXPECT_EQ(run(sum(tensor({16384, 14336}), {0}, tensor({14336}))),
            "+57344 +139460608 +448 -448 -139460608");
}

TEST(Reduction, FewRowsNeedNoStaging) {
  EXPECT_EQ(run(sum(tensor({64, 64}), {0}, tensor({64}))), "+256");
  EXPECT_EQ(run(sum(tensor({1000, 1000}), {0}, tensor({1000}))), "+4000");
}

TEST(Reduction, WholeTensorTakesOneNumberPerBlock) {
  const OpCall whole = call("aten::sum", {tensor({8192, 8192}), std::monostate{}}, {tensor({})});
  EXPECT_EQ(run(whole), "+4 +2112 +4 -4 -2112");
  const OpCall norm =
      call("aten::linalg_vector_norm",
           {tensor({1024, 1024}), 2.0, std::monostate{}, false, std::monostate{}}, {tensor({})});
  EXPECT_EQ(run(norm), "+4 +512 +4 -4 -512");
  const OpCall max = call("aten::max", {tensor({1000000})}, {tensor({})});
  EXPECT_EQ(run(max), "+4 +492 +4 -4 -492");
}

TEST(Reduction, ChannelSumsDependOnTheLayout) {
  const Sizes s{8, 64, 256, 256};
  EXPECT_EQ(run(sum(tensor(s), {0, 2, 3}, tensor({64}))), "+256 +2304 +256 -256 -2304");
  EXPECT_EQ(run(sum(test::channels_last(s), {0, 2, 3}, tensor({64}))),
            "+256 +34603008 +4 -4 -34603008");
}

TEST(Reduction, OtherTypesAreConvertedFirst) {
  const OpCall count = call("aten::sum", {tensor({1000}, DType::kBool), std::monostate{}},
                            {tensor({}, test::kInt64)});
  EXPECT_EQ(run(count), "+8 +8000 -8000");
  const OpCall wide = call("aten::sum", {tensor({64, 64}, kBf16), std::int64_t{6}}, {tensor({})});
  EXPECT_EQ(run(wide), "+4");
}

TEST(Reduction, LogSumExpHoldsTheShiftedExponentials) {
  const OpCall op = call("aten::logsumexp", {tensor({4096, 32000}, kBf16), Sizes{-1}, false},
                         {tensor({4096}, kBf16)});
  EXPECT_EQ(run(op), "+8192 +8192 +4096 -4096 -8192 +262144000 +8192 -262144000 -8192");
}

}  // namespace
}  // namespace peakline
