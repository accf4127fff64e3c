// Expected events are those of a real H200 under torch 2.11.
#include <gtest/gtest.h>

#include "op_call.h"

namespace peakline {
namespace {

using test::call;
using test::kBf16;
using test::kInt64;
using test::run;
using test::tensor;

OpCall embedding_backward(std::int64_t vocabulary, std::int64_t tokens, std::int64_t width) {
  return call(
      "aten::embedding_dense_backward",
      {tensor({tokens, width}), tensor({tokens}, kInt64), vocabulary, std::int64_t{-1}, false},
      {tensor({vocabulary, width})});
}

TEST(Embedding, FewTokensNeedNoSort) {
  EXPECT_EQ(run(embedding_backward(1000, 64, 32)), "+128000");
}

TEST(Embedding, GradientIsSummedInPartsOverSortedTokens) {
  const std::string events = run(embedding_backward(50257, 4096, 768));
  EXPECT_TRUE(events.starts_with("+32768 +32768 +32768 +83455 -83455 -32768 +154389504 +32768 +8 "))
      << events;
  EXPECT_NE(events.find("+36040 +13839360 -13839360 -36040"), std::string::npos) << events;
}

OpCall bag_backward(std::int64_t mode) {
  const TensorMeta bags = tensor({700}, kInt64);
  return call("aten::_embedding_bag_dense_backward",
              {tensor({700, 64}), tensor({14000}, kInt64), tensor({14000}, kInt64), bags, bags,
               std::int64_t{50000}, false, mode, test::none(), std::int64_t{-1}},
              {tensor({50000, 64})});
}

TEST(Embedding, BagsAreSummedAsTokensAre) {
  const std::string events = run(bag_backward(1));
  EXPECT_TRUE(events.starts_with(
      "+112000 +112000 +112000 +245247 -245247 -112000 +12800000 +112000 +8 +112000 +1279"))
      << events;
  EXPECT_NE(events.find("+123200 +3942400 -3942400 -123200"), std::string::npos) << events;
  EXPECT_EQ(run(bag_backward(2)), "+12800000");  // the largest of each bag: nothing to sort
}

// The last is the tensor of positions, which is empty.
TEST(Unique, CountsAloneNeedNoPositions) {
  const TensorMeta numbers = tensor({90000}, kInt64);
  EXPECT_EQ(run(call("aten::_unique2", {numbers, true, false, true},
                     {numbers, tensor({0}, kInt64), numbers})),
            "+720000 +753407 -753407 +720000 +8 +720000 +2815 -2815 -8 -720000 +0");
}

TEST(IndexPut, AccumulatingSortsPositions) {
  const OpCall op =
      call("aten::_index_put_impl_",
           {tensor({10000, 512}, kBf16), std::vector<TensorMeta>{tensor({8192}, kInt64)},
            tensor({8192, 512}, kBf16), true, true},
           {});
  EXPECT_EQ(
      run(op),
      "+65536 +65536 -65536 +65536 +65536 +65536 +137727 -137727 -65536 -65536 -65536 -65536");
}

TEST(IndexPut, PlainWritesNeedNothing) {
  const OpCall op =
      call("aten::_index_put_impl_",
           {tensor({10000, 512}, kBf16), std::vector<TensorMeta>{tensor({8192}, kInt64)},
            tensor({8192, 512}, kBf16), false, true},
           {});
  EXPECT_EQ(run(op), "");
}

OpCall indexed(const TensorMeta& rows, const TensorMeta& columns) {
  return call("aten::index",
              {tensor({8, 1025}, DType::kBool), std::vector<TensorMeta>{rows, columns}},
              {tensor({8, 1, 1, 512}, DType::kBool)});
}

TEST(Index, IndicesThatLieDifferentlyAreCopied) {
  EXPECT_EQ(run(indexed(tensor({8, 1, 1, 1}, kInt64), tensor({1, 1, 1, 512}, kInt64))),
            "+32768 +32768 +4096 -32768 -32768");
}

TEST(Index, IndicesOfOneShapeAreReadInPlace) {
  EXPECT_EQ(run(indexed(tensor({8, 1, 1, 512}, kInt64), tensor({8, 1, 1, 512}, kInt64))), "+4096");
}

TEST(Index, NarrowIndicesAndThoseOnTheHostAreCopied) {
  const TensorMeta narrow = tensor({8, 1, 1, 512}, DType::kInt32);
  EXPECT_EQ(run(indexed(tensor({8, 1, 1, 512}, kInt64), narrow)), "+32768 +4096 -32768");
  TensorMeta host = tensor({8, 1, 1, 512}, kInt64);
  host.on_gpu = false;
  EXPECT_EQ(run(indexed(tensor({8, 1, 1, 512}, kInt64), host)), "+32768 +4096 -32768");
}

TEST(IndexPut, IndicesThatLieDifferentlyAreCopied) {
  EXPECT_EQ(run(call("aten::_index_put_impl_",
                     {tensor({8, 1025}),
                      std::vector<TensorMeta>{tensor({8, 1}, kInt64), tensor({512}, kInt64)},
                      tensor({8, 512}), false, true},
                     {})),
            "+32768 +32768 -32768 -32768");
}

OpCall isin(std::int64_t elements, std::int64_t tests) {
  OpCall op =
      call("aten::isin", {tensor({elements}, kInt64), tensor({tests}, kInt64), false, false},
           {tensor({elements}, DType::kBool)});
  op.overload = "Tensor_Tensor";
  return op;
}

TEST(IsIn, FewElementsAreComparedOneByOne) {
  EXPECT_EQ(run(isin(32000, 1)), "+32000 +32000 +32000 -32000 -32000");
  EXPECT_EQ(run(isin(32000, 3)), "+32000 +96000 +32000 -32000 -96000");
}

TEST(IsIn, ManyElementsAreSorted) {
  const std::string events = run(isin(32000, 20000));
  EXPECT_TRUE(events.starts_with("+32000 +256000 +256000 +256000 ")) << events;
  EXPECT_EQ(events.find("+640000000"), std::string::npos) << events;
}

TEST(Sort, ShortRowsAreSortedInPlace) {
  const OpCall op = call("aten::sort", {tensor({1000}), std::int64_t{-1}, false},
                         {tensor({1000}), tensor({1000}, kInt64)});
  EXPECT_EQ(run(op), "+4000 +8000 +8000 -8000");
}

TEST(Sort, LongRowsGoThroughRadixSort) {
  const OpCall op = call("aten::sort", {tensor({1000000}), std::int64_t{-1}, false},
                         {tensor({1000000}), tensor({1000000}, kInt64)});
  EXPECT_EQ(run(op), "+4000000 +8000000 +8000000 +12200191 -12200191 -8000000");
}

TEST(TopK, LongRowsAreSharedByBlocks) {
  const OpCall op =
      call("aten::topk", {tensor({1000000}), std::int64_t{50}, std::int64_t{-1}, true, true},
           {tensor({50}), tensor({50}, kInt64)});
  EXPECT_TRUE(run(op).starts_with("+200 +400 +4 +8 +8 +400384 +1024 +3128 +3128 ")) << run(op);
}

TEST(Sparse, CoalesceSortsPlacesWithTheirOrderThenSelects) {
  // Merge sort: where 489 tiles begin, then copies of 8-byte places and order.
  EXPECT_EQ(run(call("aten::_coalesce", {std::int64_t{1000000}}, {})),
            "+16002303 -16002303 +2815 -2815");
}

}  // namespace
}  // namespace peakline
