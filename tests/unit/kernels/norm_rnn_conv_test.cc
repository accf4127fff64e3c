// Expected events are those of a real H200 under torch 2.11.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

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

// As on an H200: sequences first, then batches.
TEST(LayerNorm, AGradientInAnotherOrderIsCopiedAfterTheResultsAreMade) {
  const TensorMeta gradient = tensor({32, 96, 512}, kFp32, {512, 16384, 1});
  const TensorMeta x = tensor({32, 96, 512});
  const TensorMeta row = tensor({32, 96, 1});
  const TensorMeta w = tensor({512});
  EXPECT_EQ(run(call("aten::native_layer_norm_backward",
                     {gradient, x, Sizes{512}, row, row, w, w, std::vector<bool>{true, true, true}},
                     {x, w, w})),
            "+6291456 +2048 +2048 +6291456 -6291456");
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

// As lstm(), with the sequences packed: `rows` steps in all, of 32 sequences up to 128 long.
OpCall packed_lstm(std::int64_t rows) {
  OpCall op = lstm(kFp32, 1, 0);
  op.arguments[0] = tensor({rows, 512});
  op.arguments[10] = false;
  op.arguments[14] = Sizes(128, 32);
  op.outputs[0].meta = tensor({rows, 1024});
  return op;
}

TEST(Rnn, ReserveOfPackedSequencesIsThatOfTheirSteps) {
  const std::string all = run(packed_lstm(4096));
  EXPECT_NE(all.find("+83886336"), std::string::npos) << all;
  const std::string some = run(packed_lstm(3000));
  EXPECT_EQ(some.find("+83886336"), std::string::npos) << some;
}

struct Shape {
  std::int64_t mode;
  std::int64_t batch;
  std::int64_t length;
  std::int64_t input;
  std::int64_t hidden;
  std::int64_t layers;
  bool both;
};

// The largest block of a forward pass: of these networks the workspace.
std::int64_t workspace_of(const Shape& s, DType dtype) {
  const std::int64_t directions = s.both ? 2 : 1;
  const TensorMeta state = tensor({s.layers * directions, s.batch, s.hidden}, dtype);
  const OpCall op =
      call("aten::_cudnn_rnn",
           {tensor({s.batch, s.length, s.input}, dtype), std::vector<TensorMeta>{}, std::int64_t{4},
            tensor({1}, dtype), state, test::none(), s.mode, s.hidden, std::int64_t{0}, s.layers,
            true, 0.0, true, s.both, Sizes{}, test::none()},
           {tensor({s.batch, s.length, s.hidden * directions}, dtype), state, state,
            tensor({1}, DType::kUInt8), test::none()});
  std::int64_t largest = 0;
  for (const Step& step : allocation_program(op, test::h200(), {}).steps) {
    if (step.kind == Step::Kind::kAlloc) largest = std::max(largest, step.bytes.raw());
  }
  return largest;
}

// Measured on an H200 with cuDNN 9.19; paddings below a KiB are not modelled.
TEST(Rnn, WorkspacesAreWithinAKibibyteOfTheMeasuredOnes) {
  const std::int64_t slack = 1024;
  EXPECT_NEAR(workspace_of({3, 8, 200, 128, 650, 2, false}, kFp32), 50653152, slack);
  EXPECT_NEAR(workspace_of({3, 64, 100, 300, 512, 2, true}, DType::kFloat16), 136139520, slack);
  EXPECT_NEAR(workspace_of({2, 1, 500, 80, 320, 3, true}, kFp32), 83300896, slack);
  EXPECT_NEAR(workspace_of({2, 32, 50, 512, 1024, 4, false}, DType::kFloat16), 117113344, slack);
  EXPECT_NEAR(workspace_of({1, 16, 64, 256, 256, 1, false}, kBf16), 11837824, slack);
  EXPECT_NEAR(workspace_of({3, 24, 200, 256, 512, 3, true}, kFp32), 227377600, slack);
}

OpCall conv(const TensorMeta& x, const TensorMeta& w, const TensorMeta& y, std::int64_t stride,
            std::int64_t padding) {
  OpCall made = call("aten::cudnn_convolution", {x, w}, {y});
  made.convolution = test::convolution(2, stride, padding);
  made.convolution->channels_last = !x.contiguous();
  return made;
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

OpCall conv_backward(const TensorMeta& x, const TensorMeta& w, const TensorMeta& y,
                     std::int64_t padding) {
  OpCall made = call("aten::convolution_backward",
                     {y, x, w, Sizes{w.sizes[0]}, Sizes{1, 1}, Sizes{padding, padding}, Sizes{1, 1},
                      false, Sizes{0, 0}, std::int64_t{1}, std::vector<bool>{true, true, false}},
                     {x, w, tensor({w.sizes[0]}, x.dtype)});
  made.convolution = test::convolution(2, 1, padding);
  made.convolution->channels_last = !x.contiguous();
  return made;
}

TEST(Convolution, AnInputInAnotherLayoutIsCopiedFirstAndKeptForBothGradients) {
  const TensorMeta x = tensor({8, 64, 32, 32}, kBf16);
  const TensorMeta w = channels_last({64, 64, 3, 3}, kBf16);
  OpCall op = conv_backward(x, w, x, 1);
  op.convolution->channels_last = true;
  const std::string events = run(op);
  // The input's copy, the gradient's, then the gradient of the input.
  EXPECT_TRUE(events.starts_with("+1048576 +1048576 +1048576 ")) << events;
  EXPECT_NE(events.find(" -442368 -1048576 -1048576"), std::string::npos) << events;
}

OpCall input_gradient(const TensorMeta& x, const TensorMeta& w, const TensorMeta& y) {
  OpCall op = conv_backward(x, w, y, 0);
  op.arguments[10] = std::vector<bool>{true, false, false};
  op.outputs[1].fresh = op.outputs[2].fresh = false;
  return op;
}

// Seen on an H200 in a gradient penalty: the scores' gradient is one number, expanded.
TEST(Convolution, AnExpandedGradientIsCopiedByEachPassAfterItsResult) {
  const TensorMeta y = tensor({48, 1, 1, 1}, kFp32, {0, 0, 0, 0});
  const TensorMeta x = tensor({48, 512, 4, 4});
  const std::string events = run(input_gradient(x, tensor({1, 512, 4, 4}), y));
  EXPECT_TRUE(events.starts_with("+1572864 +192 ")) << events;
}

// A denoiser's first layer, on an H200: 6 MiB are copied, given back, and the bias' gradient is the sum
// over the original, whose channels lie side by side.
TEST(Convolution, BiasGradientsAreSumsOverTheGradientAsItCame) {
  const TensorMeta y = channels_last({24, 512, 16, 16}, kBf16);
  OpCall op = conv_backward(tensor({24, 4, 32, 32}, kBf16), tensor({512, 4, 2, 2}, kBf16), y, 0);
  op.convolution->stride = {2, 2};
  op.arguments[10] = std::vector<bool>{false, true, true};
  op.outputs[0].fresh = false;
  const std::string events = run(op);
  EXPECT_TRUE(events.starts_with("+6291456 +16384 ")) << events;
  EXPECT_TRUE(events.ends_with(" -6291456 +1024 +25165824 +16 -16 -25165824")) << events;
}

// 36 tiles of 128 by 128 leave room for three parts on 132 SMs, 9 for fourteen.
TEST(Convolution, WeightGradientsAreSplitOverTheSms) {
  const TensorMeta x = channels_last({32, 256, 14, 14});
  EXPECT_EQ(run(conv_backward(x, channels_last({256, 256, 3, 3}), x, 1)),
            "+6422528 +2359296 +7077888 -7077888 +1024");
  const TensorMeta larger = channels_last({32, 128, 28, 28});
  EXPECT_EQ(run(conv_backward(larger, channels_last({128, 128, 3, 3}), larger, 1)),
            "+12845056 +589824 +8257536 -8257536 +512");
}

TEST(Convolution, OnePixelWeightGradientsHaveOnePartAPicture) {
  const TensorMeta x = tensor({8, 384, 16, 16}, kBf16);
  const TensorMeta y = tensor({8, 1152, 16, 16}, kBf16);
  EXPECT_EQ(run(conv_backward(x, tensor({1152, 384, 1, 1}, kBf16), y, 0)),
            "+1572864 +884736 +14155776 -14155776 +2304");
}

TEST(Convolution, SmallStridedWindowsReadThePicturesAsTheyAre) {
  const TensorMeta x = tensor({32, 3, 160, 160});
  EXPECT_EQ(run(conv(x, tensor({32, 3, 3, 3}), tensor({32, 32, 80, 80}), 2, 1)), "+26214400");
}

TEST(Convolution, OnePixelWeightGradientsOfFewChannelsConvertBothSides) {
  const TensorMeta x = tensor({48, 32, 96, 96});
  const TensorMeta w = tensor({192, 32, 1, 1});
  const AllocationProgram program =
      allocation_program(conv_backward(x, w, tensor({48, 192, 96, 96}), 0), test::h200(), {});
  std::int64_t largest = 0;
  for (const Step& step : program.steps) {
    if (step.kind == Step::Kind::kAlloc) largest = std::max(largest, step.bytes.raw());
  }
  EXPECT_NEAR(largest, 398133151, 398133151 / 200);
}

TEST(BatchNorm, ChannelsSideBySideStageTheirSums) {
  const TensorMeta x = tensor({4096, 512});
  const TensorMeta c = tensor({512});
  EXPECT_EQ(run(call("aten::native_batch_norm", {x, c, c, c, c, true, 0.1, 1e-5}, {x, c, c})),
            "+8388608 +2048 +2048 +131072 +64 -64 -131072");
}

// As on an H200; measured_workspaces_test.cc has many more.
TEST(BatchNorm, ByCudnnBlocksLeaveEachOtherTheirSumsOfChannelsSideBySide) {
  const auto forward = [](const TensorMeta& x, bool training) {
    const TensorMeta c = tensor({x.sizes[1]});
    return run(call("aten::cudnn_batch_norm", {x, c, c, c, c, training, 0.1, 1e-5}, {x, c, c}));
  };
  const auto backward = [](const TensorMeta& x) {
    const TensorMeta c = tensor({x.sizes[1]});
    return run(call("aten::cudnn_batch_norm_backward", {x, x, c, c, c, c, c, 1e-5, tensor({0})},
                    {x, c, c}));
  };
  const TensorMeta few = channels_last({16, 64, 28, 28});
  EXPECT_EQ(forward(few, true), "+3211264 +256 +256 +102212 -102212");
  EXPECT_EQ(backward(few), "+3211264 +256 +256 +68132 -68132");
  const TensorMeta many = channels_last({32, 2048, 7, 7});
  EXPECT_EQ(forward(many, true), "+12845056 +8192 +8192 +414000 -414000");
  EXPECT_EQ(backward(many), "+12845056 +8192 +8192 +279712 -279712");
  EXPECT_EQ(forward(few, false), "+3211264 +256 +256");
  EXPECT_EQ(forward(tensor({16, 64, 28, 28}), true), "+3211264 +256 +256");
}

TEST(Softmax, PicturesInChannelsLastAreCopied) {
  const TensorMeta x = channels_last({6, 21, 256, 256});
  const TensorMeta y = tensor({6, 21, 256, 256});
  for (const char* name : {"aten::_softmax", "aten::_log_softmax"}) {
    EXPECT_EQ(run(call(name, {x, std::int64_t{1}, false}, {y})), "+33030144 +33030144 -33030144");
    EXPECT_EQ(run(call(name, {y, std::int64_t{1}, false}, {y})), "+33030144");
  }
  EXPECT_EQ(
      run(call("aten::_log_softmax_backward_data", {x, y, std::int64_t{1}, std::int64_t{6}}, {y})),
      "+33030144 +33030144 -33030144");
}

TEST(Softmax, BackwardMakesTheProductBesideItsResult) {
  const TensorMeta scores = tensor({2, 32, 2048, 2048});
  EXPECT_EQ(run(call("aten::_softmax_backward_data",
                     {scores, scores, std::int64_t{-1}, std::int64_t{6}}, {scores})),
            "+1073741824 +1073741824 -1073741824");
}

// One part of the weight's gradient for each of two blocks an SM: the chip says how many SMs it has.
TEST(Convolution, WeightGradientsOfFewOutputsHaveTwoPartsAnSm) {
  const TensorMeta x = channels_last({8, 64, 32, 32});
  const TensorMeta w = channels_last({4, 64, 3, 3});
  OpCall op = conv_backward(x, w, channels_last({8, 4, 32, 32}), 1);
  const std::int64_t part = w.bytes().raw();
  EXPECT_NE(run(op).find("+" + std::to_string(264 * part)), std::string::npos);
  EXPECT_NE(run(op, *load_profile("a100-80")).find("+" + std::to_string(216 * part)),
            std::string::npos);
}

// Measured on an H200: 64 channels of 56x56, and 512 with stride 2.
TEST(Convolution, DepthwisePicturesInHalfPrecisionTakeNothingBesideTheResults) {
  const TensorMeta x = tensor({8, 64, 32, 32}, DType::kFloat16);
  const TensorMeta w = tensor({64, 1, 3, 3}, DType::kFloat16);
  OpCall op = conv_backward(x, w, x, 1);
  op.convolution->groups = 64;
  EXPECT_EQ(run(op), "+1048576 +1152 +128") << "by cuDNN";
  op.convolution->backend = Convolution::Backend::kDepthwise;
  EXPECT_EQ(run(op), "+1152 +1048576 +128") << "by torch";
}

// One picture's windows at a time, and cuBLAS.
TEST(Convolution, WithoutCudnnOnePictureIsUnfolded) {
  const TensorMeta x = tensor({8, 16, 10, 10});
  OpCall op = conv_backward(x, tensor({32, 16, 3, 3}), tensor({8, 32, 8, 8}), 0);
  op.convolution->backend = Convolution::Backend::kColumns;
  EXPECT_EQ(run(op), "+51200 +36864 W33554432 +18432 -36864 +128");
  OpCall forward =
      call("aten::_slow_conv2d_forward", {x, tensor({32, 16, 3, 3})}, {tensor({8, 32, 8, 8})});
  forward.convolution = op.convolution;
  EXPECT_EQ(run(forward), "+65536 +36864 W33554432 -36864");
}

TEST(Convolution, WithoutCudnnAPictureIsReadAsItIsWhereWindowsAreSinglePixels) {
  const TensorMeta x = tensor({8, 32, 48, 48});
  OpCall plain = conv_backward(x, tensor({64, 32, 1, 1}), tensor({8, 64, 48, 48}), 0);
  plain.convolution->backend = Convolution::Backend::kColumns;
  OpCall forward =
      call("aten::_slow_conv2d_forward", {x, tensor({64, 32, 1, 1})}, {tensor({8, 64, 48, 48})});
  forward.convolution = plain.convolution;
  EXPECT_EQ(run(forward), "+4718592 W33554432");
  forward.outputs[0].meta = tensor({8, 64, 24, 24});
  forward.convolution->stride = {2, 2};
  EXPECT_EQ(run(forward), "+1179648 +73728 W33554432 -73728") << "some are left out";
}

// The most that a program holds, without the libraries' own workspaces.
std::int64_t highest(const OpCall& op) {
  std::istringstream events(run(op));
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (std::string event; events >> event;) {
    if (event[0] != 'W') now += std::stoll(event);
    most = std::max(most, now);
  }
  return most;
}

// tools/measure_switches.py on an H200 under torch 2.11: 32 channels of 48x48, eight pictures.
TEST(Convolution, WithoutCudnnTheColumnsStayUntilAllGradientsAreMade) {
  const TensorMeta x = tensor({8, 32, 48, 48});
  const auto backward = [&](const TensorMeta& w, const TensorMeta& y) {
    OpCall op = conv_backward(x, w, y, 1);
    op.arguments[10] = std::vector<bool>{true, true, true};
    op.outputs[2].meta = tensor({64});
    op.convolution->backend = Convolution::Backend::kColumns;
    return op;
  };
  const TensorMeta y = tensor({8, 64, 48, 48});
  EXPECT_EQ(highest(backward(tensor({64, 32, 3, 3}), y)), 5087488);

  OpCall dilated = backward(tensor({64, 32, 3, 3}), tensor({8, 64, 46, 46}));
  dilated.convolution->dilation = {2, 2};
  EXPECT_EQ(highest(dilated), 4871168) << "with the sum of one picture's bias gradient";

  OpCall transposed = backward(tensor({32, 64, 3, 3}), y);
  transposed.convolution->transposed = true;
  EXPECT_EQ(highest(transposed), 7741696);
  OpCall forward = call("aten::slow_conv_transpose2d",
                        {x, tensor({32, 64, 3, 3}), Sizes{3, 3}, tensor({64})}, {y});
  forward.convolution = transposed.convolution;
  EXPECT_EQ(highest(forward), 10036224) << "with a picture of ones for the bias";

  OpCall groups = backward(tensor({64, 8, 3, 3}), y);
  groups.convolution->groups = 4;
  EXPECT_EQ(highest(groups), 4811008) << "with copies of the last group's channels";
}

}  // namespace
}  // namespace peakline
