// Expected events and choices are those of a real H200 under torch 2.11.
#include <gtest/gtest.h>

#include "op_call.h"

namespace peakline {
namespace {

using test::call;
using test::kBf16;
using test::kFp32;
using test::run;
using test::tensor;

SdpQuery query(DType dtype, std::int64_t heads, std::int64_t kv_heads, std::int64_t length,
               std::int64_t size) {
  SdpQuery q;
  q.query = tensor({2, heads, length, size}, dtype);
  q.key = q.value = tensor({2, kv_heads, length, size}, dtype);
  q.mask = test::none();
  q.enable_gqa = heads != kv_heads;
  q.causal = true;
  return q;
}

SdpBackend choice(const SdpQuery& q, const char* gpu = "h200", const SdpSwitches& switches = {}) {
  return sdp_choice(q, *load_profile(gpu), switches);
}

TEST(SdpChoice, HalfPrecisionTakesCudnnOnHopperAndFlashBefore) {
  EXPECT_EQ(choice(query(kBf16, 8, 8, 512, 64)), SdpBackend::kCudnn);
  EXPECT_EQ(choice(query(kBf16, 8, 8, 512, 64), "a100-80"), SdpBackend::kFlash);
  EXPECT_EQ(choice(query(kBf16, 8, 2, 512, 64)), SdpBackend::kCudnn);
}

TEST(SdpChoice, FloatsTakeEfficientAndMathWithGroups) {
  EXPECT_EQ(choice(query(kFp32, 8, 8, 512, 64)), SdpBackend::kEfficient);
  EXPECT_EQ(choice(query(kFp32, 8, 2, 512, 64)), SdpBackend::kMath);
}

TEST(SdpChoice, TuringHasNoBf16Kernels) {
  EXPECT_EQ(choice(query(kBf16, 8, 8, 512, 64), "t4"), SdpBackend::kMath);
  EXPECT_EQ(choice(query(DType::kFloat16, 8, 8, 512, 64), "t4"), SdpBackend::kEfficient);
}

TEST(SdpChoice, MaskedFlashIsNot) {
  SdpQuery q = query(kBf16, 8, 8, 512, 64);
  q.causal = false;
  q.mask = tensor({2, 1, 512, 512}, kBf16);
  EXPECT_EQ(choice(q), SdpBackend::kCudnn);
  EXPECT_EQ(choice(q, "a100-80"), SdpBackend::kEfficient);
}

TEST(SdpChoice, MasksThatAreTrainedTakeEfficient) {
  SdpQuery q = query(kBf16, 2, 2, 49, 32);
  q.causal = false;
  q.mask = tensor({1, 2, 49, 49}, kBf16);
  q.mask.requires_grad = true;
  EXPECT_EQ(choice(q), SdpBackend::kEfficient);
}

TEST(SdpChoice, SwitchesAndOrderAreObeyed) {
  SdpSwitches switches;
  switches.cudnn = false;
  EXPECT_EQ(choice(query(kBf16, 8, 8, 512, 64), "h200", switches), SdpBackend::kFlash);
  switches.flash = switches.efficient = false;
  EXPECT_EQ(choice(query(kBf16, 8, 8, 512, 64), "h200", switches), SdpBackend::kMath);
  switches.math = false;
  EXPECT_EQ(choice(query(kBf16, 8, 8, 512, 64), "h200", switches), SdpBackend::kError);
  SdpSwitches order;
  order.priority = {2, 1, 3, 0};
  EXPECT_EQ(choice(query(kBf16, 8, 8, 512, 64), "h200", order), SdpBackend::kEfficient);
}

TensorMeta heads(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t d, DType dtype) {
  return tensor({b, h, t, d}, dtype);
}

// As attention's results lie, and so their gradients: a token's heads side by side.
TensorMeta by_token(TensorMeta heads) {
  const std::int64_t token = heads.sizes[1] * heads.sizes[3];
  heads.strides = {heads.sizes[2] * token, heads.sizes[3], token, 1};
  return heads;
}

TEST(Attention, CudnnBackwardSumsTheQuerysGradientInFloat) {
  const auto backward = [](std::int64_t b, std::int64_t h, std::int64_t kv, std::int64_t t,
                           std::int64_t d) {
    const TensorMeta q = heads(b, h, t, d, kBf16);
    const TensorMeta k = heads(b, kv, t, d, kBf16);
    return run(call("aten::_scaled_dot_product_cudnn_attention_backward", {q, q, k, k}, {q, k, k}));
  };
  EXPECT_EQ(backward(8, 12, 12, 512, 64), "+6291456 +6291456 +6291456 +12779776 -12779776");
  EXPECT_EQ(backward(2, 32, 8, 2048, 64), "+16777216 +4194304 +4194304 +67633408 -67633408");
  EXPECT_EQ(backward(32, 16, 16, 197, 64), "+12910592 +12910592 +12910592 +26224896 -26224896");
}

TEST(Attention, CudnnsForwardMakesSeedAndOffsetFirst) {
  const TensorMeta q = heads(24, 8, 256, 64, kBf16);
  const TensorMeta sums = test::tensor({24, 8, 256, 1});
  const TensorMeta number = test::tensor({}, test::kInt64);
  EXPECT_EQ(run(call("aten::_scaled_dot_product_cudnn_attention", {q, q, q},
                     {q, sums, test::none(), test::none(), number, number, test::none()})),
            "+8 +8 +6291456 +196608 +256 -256");
}

TEST(Attention, CudnnsForwardKeepsSumsForBackwardAlone) {
  const TensorMeta q = heads(8, 16, 1024, 64, kBf16);
  const TensorMeta sums = test::tensor({8, 16, 1024, 1});
  const TensorMeta number = test::tensor({}, test::kInt64);
  EXPECT_EQ(run(call("aten::_scaled_dot_product_cudnn_attention", {q, q, q, test::none(), false},
                     {q, sums, test::none(), test::none(), number, number, test::none()})),
            "+8 +8 +16777216 +0 +256 -256");
}

// What a single query needs, as cuDNN 9.19 says it; 270,464 bytes were seen on an H200.
std::string decoded(std::int64_t batch, std::int64_t h, std::int64_t kv, std::int64_t keys,
                    std::int64_t size, bool causal = false, std::string_view gpu = "h200") {
  const TensorMeta q = heads(batch, h, 1, size, kBf16);
  const TensorMeta k = heads(batch, kv, keys, size, kBf16);
  const std::string events =
      run(call("aten::_scaled_dot_product_cudnn_attention",
               {q, k, k, test::none(), false, 0.0, causal}, {q, test::none(), test::none()}),
          *load_profile(gpu));
  const std::size_t after_result = events.find(' ');
  return after_result == std::string::npos ? "" : events.substr(after_result + 1);
}

TEST(Attention, CudnnSplitsTheKeysOfASingleQueryWhileTheGpuHasRoom) {
  EXPECT_EQ(decoded(8, 16, 4, 1025, 64), "+270464 -270464");
  EXPECT_EQ(decoded(8, 16, 4, 1016, 64), "+135296 -135296");
  EXPECT_EQ(decoded(9, 16, 4, 1025, 64), "+152192 -152192");
  EXPECT_EQ(decoded(66, 4, 1, 4096, 64), "+139648 -139648");
  EXPECT_EQ(decoded(1, 4, 1, 262144, 64), "+67712 -67712");
  EXPECT_EQ(decoded(8, 16, 4, 1025, 256), "+1056896 -1056896");
  EXPECT_EQ(decoded(8, 16, 4, 2048, 64, false, "a100-80"), "+135296 -135296");
}

TEST(Attention, CudnnLeavesShortKeysOrAFullGpuInOnePiece) {
  EXPECT_EQ(decoded(8, 16, 4, 512, 64), "");
  EXPECT_EQ(decoded(67, 4, 1, 4096, 64), "");
  EXPECT_EQ(decoded(8, 16, 4, 2048, 64, true), "");
}

// As on an H200: sequences first, then batches.
TEST(Attention, EfficientBackwardCopiesAGradientWhoseTokensAreNotInOrder) {
  const TensorMeta gradient = test::tensor({32, 8, 80, 64}, kFp32, {512, 64, 16384, 1});
  const TensorMeta q = heads(32, 8, 80, 64, kFp32);
  const TensorMeta k = heads(32, 8, 96, 64, kFp32);
  const std::string events =
      run(call("aten::_scaled_dot_product_efficient_attention_backward",
               {gradient, q, k, k, test::none(), q}, {q, k, k, test::none()}));
  EXPECT_TRUE(events.starts_with("+5242880 +5242880 +6291456 +6291456 ")) << events;
  EXPECT_TRUE(events.ends_with(" -5242880")) << events;
}

TEST(Attention, EfficientBackwardKeepsTilesWithLocks) {
  const auto backward = [](std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t d) {
    const TensorMeta q = heads(b, h, t, d, kFp32);
    return run(call("aten::_scaled_dot_product_efficient_attention_backward",
                    {by_token(q), q, q, q, test::none(), q}, {q, q, q, test::none()}));
  };
  EXPECT_EQ(backward(8, 12, 512, 64),
            "+12582912 +12582912 +12582912 +12582912 +196608 +196608 -196608 -12582912 +12595200 "
            "-196608 -12595200");
  EXPECT_EQ(backward(4, 8, 1024, 96),
            "+12582912 +12582912 +12582912 +12582912 +131072 +131072 -131072 -12582912 +16785408 "
            "-131072 -16785408");
}

TEST(Attention, HalfPrecisionEfficientBackwardMakesItsRowSumsItself) {
  const auto backward = [](std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t s,
                           std::int64_t d) {
    const TensorMeta q = heads(b, h, t, d, kBf16);
    const TensorMeta k = heads(b, h, s, d, kBf16);
    return run(call("aten::_scaled_dot_product_efficient_attention_backward",
                    {by_token(q), q, k, k, test::none(), q}, {q, k, k, test::none()}));
  };
  EXPECT_EQ(backward(4, 8, 64, 77, 40), "+163840 +197120 +197120 +8192 +524800 -8192 -524800");
  EXPECT_EQ(backward(2, 8, 512, 512, 192),
            "+3145728 +3145728 +3145728 +32768 +23071744 -32768 -23071744");
}

TEST(Attention, FlashSplitsKeysWhereSmsWouldIdle) {
  const auto forward = [](std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t d) {
    const TensorMeta q = heads(b, h, t, d, kBf16);
    return run(
        call("aten::_scaled_dot_product_flash_attention", {q, q, q, 0.0, true, false},
             {q, tensor({b, h, t}), tensor({2}, DType::kUInt64), tensor({}, DType::kUInt64)}));
  };
  EXPECT_EQ(forward(2, 6, 1024, 64), "+1572864 +49152 +196608 +12582912 +16 +8 -12582912 -196608");
  EXPECT_EQ(forward(2, 8, 512, 192), "+3145728 +32768 +65536 +12582912 +16 +8 -12582912 -65536");
  EXPECT_EQ(forward(8, 32, 1024, 64), "+33554432 +1048576 +16 +8");
}

TEST(Attention, FlashBackwardSumsInFloatOverPaddedRows) {
  // Heads last in memory, as a model's projections leave them.
  const TensorMeta q = tensor({4, 8, 64, 40}, kBf16, {64 * 8 * 40, 40, 8 * 40, 1});
  const TensorMeta k = tensor({4, 8, 77, 40}, kBf16, {77 * 8 * 40, 40, 8 * 40, 1});
  EXPECT_EQ(
      run(call("aten::_scaled_dot_product_flash_attention_backward", {q, q, k, k, q}, {q, k, k})),
      "+163840 +197120 +197120 +16384 +1048576 -1048576 -16384");
}

}  // namespace
}  // namespace peakline
