// Expected events are those of a real H200 under torch 2.11.
#include <gtest/gtest.h>

#include "op_call.h"

namespace peakline {
namespace {

using test::call;
using test::channels_last;
using test::kBf16;
using test::kFp32;
using test::run;
using test::Sizes;
using test::tensor;

TEST(LayerNorm, ManyShortRowsSumWeightGradientsInParts) {
  const auto backward = [](std::int64_t rows, std::int64_t width) {
    const TensorMeta x = tensor({rows, width});
    const TensorMeta w = tensor({width});
    const TensorMeta statistic = tensor({rows, 1});
    return run(
        call("aten::native_layer_norm_backward",
             {x, x, Sizes{width}, statistic, statistic, w, w, std::vector<bool>{true, true, true}},
             {x, w, w}));
  };
  EXPECT_EQ(backward(8192, 512), "+16777216 +2048 +2048");
  EXPECT_EQ(backward(100000, 96),
            "+38400000 +384 +384 +1200000 +1200000 +384 +614400 +8 -8 -614400 -384 +384 +614400 +8 "
            "-8 -614400 -384 -1200000 -1200000");
}

TEST(GroupNorm, FactorsPerChannelAreFloats) {
  const TensorMeta x = tensor({8, 256, 64, 64}, kBf16);
  const TensorMeta w = tensor({256}, kBf16);
  const TensorMeta statistic = tensor({8, 8}, kBf16);
  const OpCall forward =
      call("aten::native_group_norm",
           {x, w, w, std::int64_t{8}, std::int64_t{256}, std::int64_t{4096}, std::int64_t{8}, 1e-5},
           {x, statistic, statistic});
  EXPECT_EQ(run(forward), "+16777216 +128 +128 +8192 +8192 -8192 -8192");
  const OpCall backward =
      call("aten::native_group_norm_backward",
           {x, x, statistic, statistic, w, std::int64_t{8}, std::int64_t{256}, std::int64_t{4096},
            std::int64_t{8}, std::vector<bool>{true, true, true}},
           {x, w, w});
  EXPECT_EQ(run(backward),
            "+16777216 +512 +512 +8192 +8192 +256 +256 +8192 -256 -256 -8192 -8192 -8192");
}

OpCall lstm(DType dtype, std::int64_t layers, double dropout) {
  const std::int64_t b = 32;
  const std::int64_t t = 128;
  const std::int64_t i = 512;
  const std::int64_t h = 1024;
  std::vector<TensorMeta> weights;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    weights.push_back(tensor({4 * h, layer == 0 ? i : h}, dtype));
    weights.push_back(tensor({4 * h, h}, dtype));
    weights.push_back(tensor({4 * h}, dtype));
    weights.push_back(tensor({4 * h}, dtype));
  }
  const TensorMeta state = tensor({layers, b, h}, dtype);
  return call("aten::_cudnn_rnn",
              {tensor({b, t, i}, dtype), weights, std::int64_t{4}, tensor({1}, dtype), state, state,
               std::int64_t{2}, h, std::int64_t{0}, layers, true, dropout, true, false, Sizes{},
               test::none()},
              {tensor({b, t, h}, dtype), state, state, tensor({1}, DType::kUInt8), test::none()});
}

TEST(Rnn, ReserveAndWorkspaceOfTheLstmsThatWereMeasured) {
  EXPECT_EQ(run(lstm(kFp32, 1, 0)),
            "+8388608 +16777216 +131072 +131072 +127140352 +83886336 -127140352 -8388608");
  EXPECT_EQ(
      run(lstm(kFp32, 3, 0.1)),
      "W6488064 +8388608 +16777216 +393216 +393216 +230425088 +286261504 -230425088 -8388608");
  EXPECT_EQ(run(lstm(kBf16, 1, 0)),
            "+4194304 +8388608 +65536 +65536 +67764736 +41943296 -67764736 -4194304");
}

OpCall conv(const TensorMeta& x, const TensorMeta& w, const TensorMeta& y, std::int64_t stride,
            std::int64_t padding) {
  return call("aten::convolution",
              {x, w, tensor({w.sizes[0]}, x.dtype), Sizes{stride, stride}, Sizes{padding, padding},
               Sizes{1, 1}, false, Sizes{0, 0}, std::int64_t{1}},
              {y});
}

TEST(Convolution, OtherLayoutsAreConvertedIntoTheWorkspace) {
  const TensorMeta x = tensor({32, 512, 7, 7}, kBf16);
  EXPECT_EQ(run(conv(x, tensor({512, 512, 3, 3}, kBf16), x, 1, 1)), "+1605632 +7929872 -7929872");
  EXPECT_EQ(run(conv(tensor({32, 256, 28, 28}), tensor({512, 256, 1, 1}), tensor({32, 512, 14, 14}),
                     2, 0)),
            "+12845056 +38535184 -38535184");
  const TensorMeta dense = channels_last({32, 512, 7, 7}, kBf16);
  EXPECT_EQ(run(conv(dense, channels_last({512, 512, 3, 3}, kBf16), dense, 1, 1)), "+1605632");
}

TEST(Convolution, ThreeChannelsArePaddedToEight) {
  EXPECT_EQ(run(conv(channels_last({32, 3, 224, 224}, kBf16), channels_last({64, 3, 7, 7}, kBf16),
                     channels_last({32, 64, 112, 112}, kBf16), 2, 3)),
            "+51380224 +25740304 -25740304");
}

TEST(Convolution, OnePixelWindowsOverAlignedPicturesNeedNothing) {
  EXPECT_EQ(
      run(conv(tensor({32, 64, 56, 56}), tensor({256, 64, 1, 1}), tensor({32, 256, 56, 56}), 1, 0)),
      "+102760448");
  EXPECT_EQ(
      run(conv(tensor({32, 512, 7, 7}), tensor({2048, 512, 1, 1}), tensor({32, 2048, 7, 7}), 1, 0)),
      "+12845056 +16056336 -16056336");
}

TEST(Softmax, BackwardMakesTheProductBesideItsResult) {
  const TensorMeta scores = tensor({2, 32, 2048, 2048});
  EXPECT_EQ(run(call("aten::_softmax_backward_data",
                     {scores, scores, std::int64_t{-1}, std::int64_t{6}}, {scores})),
            "+1073741824 +1073741824 -1073741824");
}

TEST(Convolution, ChannelsLastInputMakesTheOutputSo) {
  const OpCall op =
      conv(channels_last({2, 16, 8, 8}), tensor({16, 16, 3, 3}), tensor({2, 16, 8, 8}), 1, 1);
  const AllocationProgram program = allocation_program(op, test::h200(), {});
  ASSERT_EQ(program.changes.size(), 1U);
  EXPECT_EQ(program.changes[0].meta.strides, (Sizes{1024, 1, 128, 16}));
}

}  // namespace
}  // namespace peakline
