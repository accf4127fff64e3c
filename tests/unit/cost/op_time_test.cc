#include <gtest/gtest.h>

#include <peakline/cost.h>
#include <peakline/generated_kernel.h>
#include <peakline/measured_calls.h>

namespace peakline {
namespace {

DeviceProfile gpu(std::string_view name = "h200") { return *load_profile(name); }

TensorMeta tensor(std::vector<std::int64_t> sizes, DType dtype = DType::kBFloat16) {
  TensorMeta made;
  made.strides.resize(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    made.strides[i] = stride;
    stride *= sizes[i];
  }
  made.sizes = std::move(sizes);
  made.dtype = dtype;
  return made;
}

OpCall call(std::string_view name, std::vector<Argument> arguments, TensorMeta output) {
  OpCall made;
  made.name = name;
  made.arguments = std::move(arguments);
  made.outputs.push_back({std::move(output), true});
  return made;
}

OpTime mm(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype, const DeviceProfile& on,
          const KernelState& state = {}) {
  return op_time(
      call("aten::mm", {tensor({m, k}, dtype), tensor({k, n}, dtype)}, tensor({m, n}, dtype)), on,
      state);
}

TEST(OpTime, ALargeProductRunsNearTheDensePeakAndIsBoundByArithmetic) {
  const OpTime time = mm(8192, 8192, 8192, DType::kBFloat16, gpu());
  const double tflops = time.flops / time.us / 1e6;
  EXPECT_GT(tflops, 650);
  EXPECT_LT(tflops, 989);
  EXPECT_EQ(time.bound, TimeBound::kCompute);
}

TEST(OpTime, OneRowMoreThanAWaveOfTilesCostsAnotherWave) {
  const OpTime full = mm(132 * 128, 256, 8192, DType::kBFloat16, gpu());
  const OpTime more = mm(132 * 128 + 8, 256, 8192, DType::kBFloat16, gpu());
  EXPECT_GT(more.us, 1.1 * full.us);
}

TEST(OpTime, SinglePrecisionIsMuchSlowerUnlessTf32IsAllowed) {
  KernelState tf32;
  tf32.switches.matmul_allow_tf32 = true;
  const double plain = mm(4096, 4096, 4096, DType::kFloat32, gpu()).us;
  const double fast = mm(4096, 4096, 4096, DType::kFloat32, gpu(), tf32).us;
  EXPECT_GT(plain, 5 * fast);
}

TEST(OpTime, OddSizesTakeSlowKernels) {
  EXPECT_GT(mm(4095, 4095, 4095, DType::kBFloat16, gpu()).us,
            3 * mm(4096, 4096, 4096, DType::kBFloat16, gpu()).us);
}

TEST(OpTime, RandomNumbersOfTheHostCostItByTheirNumberAndTheGpuNothing) {
  DeviceProfile profile = gpu();
  profile.time.host_random_ns = 5;
  TensorMeta pictures = tensor({1000, 200}, DType::kFloat32);
  pictures.on_gpu = false;
  const OpTime made = op_time(call("aten::uniform_", {pictures}, pictures), profile, {});
  EXPECT_DOUBLE_EQ(made.host_us, 1000);
  EXPECT_EQ(made.kernels, 0);
  EXPECT_EQ(made.us, 0);
  EXPECT_EQ(op_time(call("aten::uniform_", {tensor({9})}, tensor({9})), profile, {}).host_us, 0);
}

TEST(OpTime, OpsOnTheHostsTensorsCostItWhatTheyReadAndWrite) {
  DeviceProfile profile = gpu();
  profile.time.host_gbps = 10;
  TensorMeta x = tensor({1000, 1000}, DType::kFloat32);
  x.on_gpu = false;
  EXPECT_DOUBLE_EQ(op_time(call("aten::mul", {x, x}, x), profile, {}).host_us, 1200);
  OpCall view = call("aten::view", {x}, x);
  EXPECT_EQ(op_time(view, profile, {}).host_us, 0);
}

TEST(OpTime, CopiesOfMemoryThatIsNotPinnedGoAtTheDriversRate) {
  DeviceProfile profile = gpu();
  profile.time.pcie_gbps = 50;
  profile.time.pageable_gbps = 5;
  profile.time.pcie_us = 0;
  EXPECT_DOUBLE_EQ(host_copy_time(1e9, false, profile).us, 2e5);
  EXPECT_DOUBLE_EQ(host_copy_time(1e9, true, profile).us, 2e4);
}

TEST(OpTime, AKernelThatACompilerWroteTakesTheTimeOfItsBytes) {
  const TensorMeta x = tensor({100'000'000}, DType::kFloat32);
  const OpTime add = op_time(call("aten::add", {x, x}, x), gpu(), {});
  const OpTime written = generated_kernel_time(1.2e9, gpu());
  EXPECT_NEAR(written.us, add.us, 1);
  EXPECT_EQ(written.bound, TimeBound::kMemory);
  EXPECT_TRUE(written.guessed);
  EXPECT_EQ(written.kernels, 1);
}

TEST(OpTime, AddingIsBoundByMemoryAndFasterInsideL2) {
  const auto add = [](std::int64_t n) {
    const TensorMeta x = tensor({n}, DType::kFloat32);
    return op_time(call("aten::add", {x, x}, x), gpu(), {});
  };
  const OpTime large = add(100'000'000);
  EXPECT_EQ(large.bound, TimeBound::kMemory);
  EXPECT_NEAR(large.us, 1.2e9 / 4.37e6, 30);
  EXPECT_LT(add(1'000'000).us * 100, large.us * 2.5);
}

TEST(OpTime, SmallKernelsAreLatency) {
  const TensorMeta x = tensor({64});
  EXPECT_EQ(op_time(call("aten::add_", {x, x}, x), gpu(), {}).bound, TimeBound::kLatency);
}

TEST(OpTime, ViewsAndEmptyTensorsStartNoKernel) {
  const TensorMeta x = tensor({64, 64});
  OpCall view = call("aten::diagonal", {x}, x);
  view.view = true;
  EXPECT_EQ(op_time(view, gpu(), {}).kernels, 0);
  EXPECT_EQ(op_time(call("aten::empty", {}, x), gpu(), {}).kernels, 0);
}

TEST(OpTime, HostTensorsAreNotTheGpusBusiness) {
  TensorMeta host = tensor({1 << 20});
  host.on_gpu = false;
  OpCall add = call("aten::add", {host, host}, host);
  EXPECT_EQ(op_time(add, gpu(), {}).us, 0);
}

TEST(OpTime, FloatsBecomeSixteenBitsQuickerThanTheOtherWay) {
  const TensorMeta wide = tensor({2048, 2048}, DType::kFloat32);
  const TensorMeta narrow = tensor({2048, 2048});
  const double down = op_time(call("aten::_to_copy", {wide}, narrow), gpu(), {}).us;
  const double up = op_time(call("aten::_to_copy", {narrow}, wide), gpu(), {}).us;
  EXPECT_LT(1.5 * down, up);
}

TEST(OpTime, BatchNormsOfFewChannelsLeaveMostOfTheGpuIdle) {
  const auto norm = [](std::int64_t channels) {
    const TensorMeta x = tensor({32, channels, 64, 8192 / channels * 8}, DType::kFloat32);
    const TensorMeta w = tensor({channels}, DType::kFloat32);
    return op_time(call("aten::cudnn_batch_norm", {x, w, w, w, w, true}, x), gpu(), {}).us;
  };
  EXPECT_GT(norm(32), 3 * norm(512));
}

TEST(OpTime, AskingALibraryIsMoreWorkForTheHostThanStartingAKernel) {
  const TensorMeta x = tensor({64, 64});
  EXPECT_EQ(op_time(call("aten::add", {x, x}, x), gpu(), {}).issue, 1);
  EXPECT_EQ(op_time(call("aten::mm", {x, x}, x), gpu(), {}).issue, 3);
  const std::vector<TensorMeta> list(100, x);
  EXPECT_DOUBLE_EQ(op_time(call("aten::_foreach_mul_", {list, 2.0}, x), gpu(), {}).issue, 4);
}

TEST(OpTime, ARecurrentNetworkHasTwoKernelsAStep) {
  const TensorMeta x = tensor({100, 16, 256}, DType::kFloat32);
  const OpTime time = op_time(
      call("aten::_cudnn_rnn",
           {x, std::vector<TensorMeta>{}, std::int64_t{4}, TensorMeta{}, x, x, std::int64_t{3},
            std::int64_t{256}, std::int64_t{0}, std::int64_t{2}, false, 0.0, true, true},
           x),
      gpu(), {});
  EXPECT_GE(time.kernels, 2 * 2 * 100 * 2);
}

TEST(OpTime, CausalAttentionTakesAboutHalf) {
  const TensorMeta q = tensor({8, 16, 4096, 128});
  const auto attention = [&](bool causal) {
    return op_time(call("aten::_scaled_dot_product_cudnn_attention",
                        {q, q, q, std::monostate{}, false, 0.0, causal}, q),
                   gpu(), {})
        .us;
  };
  EXPECT_NEAR(attention(true) / attention(false), 0.55, 0.1);
}

TEST(OpTime, AnOperandThatIsBroadcastAlongRowsIsNoTransposedOne) {
  const TensorMeta x = tensor({4, 1024, 1024}, DType::kFloat32);
  TensorMeta expanded = x;  // a number for each row
  expanded.strides = {1024, 1, 0};
  TensorMeta turned = x;
  turned.strides = {1024 * 1024, 1, 1024};
  const auto with = [&](const TensorMeta& other) {
    return op_time(call("aten::mul", {x, other}, x), gpu(), {}).us;
  };
  EXPECT_LE(with(tensor({4, 1024, 1}, DType::kFloat32)), 1.2 * with(x));
  EXPECT_LE(with(expanded), 1.2 * with(x));
  EXPECT_GT(with(turned), 1.8 * with(x));
}

TEST(OpTime, AttentionsGradientOfFewKeysWalksAllQueriesInFewBlocks) {
  const auto backward = [](std::int64_t queries, std::int64_t keys) {
    const TensorMeta q = tensor({8, 1, queries, 32}, DType::kFloat32);
    const TensorMeta k = tensor({8, 1, keys, 32}, DType::kFloat32);
    return op_time(call("aten::_scaled_dot_product_efficient_attention_backward", {q, q, k, k}, q),
                   gpu(), {})
        .us;
  };
  // 32 blocks for 132 multiprocessors, each over 16384 queries.
  EXPECT_GT(backward(16384, 256), 10 * backward(1024, 256));
  EXPECT_GT(backward(16384, 256), 0.9 * backward(16384, 1024));
}

OpTime attention(std::int64_t heads, std::int64_t length, std::int64_t size, bool masked = false) {
  const TensorMeta q = tensor({8, heads, length, size});
  Argument mask = std::monostate{};
  if (masked) mask = tensor({8, 1, length, length});
  return op_time(
      call("aten::_scaled_dot_product_cudnn_attention", {q, q, q, mask, false, 0.0, false}, q),
      gpu(), {});
}

TEST(OpTime, SmallHeadsCostWhatTheKernelsWereMadeFor) {
  EXPECT_NEAR(attention(16, 1024, 80).us, attention(16, 1024, 128).us, 1);
  EXPECT_NEAR(attention(16, 1024, 32).us, attention(16, 1024, 64).us, 1);
  // Utilisation counts what the program asked for.
  EXPECT_LT(attention(16, 1024, 80).flops, 0.7 * attention(16, 1024, 128).flops);
}

TEST(OpTime, AMaskIsReadForEveryPair) {
  EXPECT_GT(attention(12, 512, 64, true).us, 1.5 * attention(12, 512, 64).us);
}

OpCall depthwise(Convolution::Backend backend, bool backward) {
  const TensorMeta x = tensor({32, 96, 56, 56}, DType::kFloat32);
  const TensorMeta w = tensor({96, 1, 3, 3}, DType::kFloat32);
  OpCall made = backward ? call("aten::convolution_backward", {x, x, w}, x)
                         : call("aten::convolution", {x, w}, x);
  made.convolution.emplace();
  made.convolution->backend = backend;
  made.convolution->groups = 96;
  made.convolution->channels_last = backend == Convolution::Backend::kCudnn;
  return made;
}

TEST(OpTime, TorchsOwnDepthwiseKernelsTakeSeveralTimesWhatTheyMove) {
  const double own = op_time(depthwise(Convolution::Backend::kDepthwise, false), gpu(), {}).us;
  const double cudnn = op_time(depthwise(Convolution::Backend::kCudnn, false), gpu(), {}).us;
  EXPECT_GT(own, 2.5 * cudnn);
  // A place of the input, and a weight over all places, are more work still.
  EXPECT_GT(op_time(depthwise(Convolution::Backend::kDepthwise, true), gpu(), {}).us, 2.5 * own);
}

TEST(OpTime, BatchNormsByTorchTakeLongerThanByCudnnUnlessChannelsLieInnermost) {
  const auto norm = [](std::string_view name, bool last) {
    TensorMeta x = tensor({32, 96, 56, 56});
    if (last) x.strides = {96 * 56 * 56, 1, 96 * 56, 96};
    const TensorMeta w = tensor({96}, DType::kFloat32);
    return op_time(call(name, {x, w, w, w, w, true}, x), gpu(), {}).us;
  };
  EXPECT_GT(norm("aten::native_batch_norm", false), 1.5 * norm("aten::cudnn_batch_norm", false));
  EXPECT_GT(norm("aten::native_batch_norm", false), 1.5 * norm("aten::native_batch_norm", true));
}

TEST(OpTime, AWindowLargerThanThePictureEndsWithIt) {
  const TensorMeta x = tensor({64, 1280, 7, 7}, DType::kFloat32);
  const TensorMeta y = tensor({64, 1280, 1, 1}, DType::kFloat32);
  const auto pool = [&](std::int64_t window) {
    return op_time(call("aten::avg_pool2d", {x, std::vector<std::int64_t>{window, window}}, y),
                   gpu(), {})
        .us;
  };
  EXPECT_DOUBLE_EQ(pool(1280), pool(7));
}

TEST(OpTime, UpsamplingWalksThePlanesOfAPlaceOneAfterAnother) {
  const auto up = [](std::int64_t planes, std::int64_t size) {
    const TensorMeta x = tensor({1, planes, size / 2, size / 2}, DType::kFloat32);
    const TensorMeta y = tensor({1, planes, size, size}, DType::kFloat32);
    return op_time(call("aten::upsample_bilinear2d", {x}, y), gpu(), {}).us;
  };
  EXPECT_GT(up(4096, 64), 3 * up(256, 256));  // as many numbers
}

TEST(OpTime, SmallRecurrentStatesStayInOneKernel) {
  const auto lstm = [](std::int64_t hidden) {
    const TensorMeta x = tensor({100, 64, 128}, DType::kFloat32);
    return op_time(
        call("aten::_cudnn_rnn",
             {x, std::vector<TensorMeta>{}, std::int64_t{4}, TensorMeta{}, x, x, std::int64_t{2},
              hidden, std::int64_t{0}, std::int64_t{1}, false, 0.0, true, false},
             x),
        gpu(), {});
  };
  EXPECT_LT(lstm(128).kernels, 4);
  EXPECT_GE(lstm(256).kernels, 200);
}

TEST(OpTime, SumsOfFewColumnsWaitForTheLastBlock) {
  const auto columns = [](std::int64_t rows, std::int64_t count) {
    const TensorMeta x = tensor({rows, count});
    return op_time(call("aten::sum", {x, std::vector<std::int64_t>{0}}, tensor({count})), gpu(), {})
        .us;
  };
  EXPECT_GT(columns(32768, 128), 2 * columns(1024, 4096));  // as many numbers
}

TEST(OpTime, GradientsOfATableOfWordsSortThem) {
  const TensorMeta grad = tensor({8192, 768}, DType::kFloat32);
  const TensorMeta words = tensor({8192}, DType::kInt64);
  const TensorMeta table = tensor({50000, 768}, DType::kFloat32);
  const OpTime time = op_time(
      call("aten::embedding_dense_backward", {grad, words, std::int64_t{50000}}, table), gpu(), {});
  EXPECT_GT(time.kernels, 16);
  EXPECT_GT(time.us, 150);
}

TEST(OpTime, ASlowerGpuIsSlower) {
  EXPECT_GT(mm(8192, 8192, 8192, DType::kBFloat16, gpu("a100")).us,
            2 * mm(8192, 8192, 8192, DType::kBFloat16, gpu("h100")).us);
}

TEST(CollectiveTime, FollowsTheRingsFormula) {
  const DeviceProfile h200 = gpu();
  const double bytes = 1e9;
  const double gather = collective_time(CollectiveKind::kAllGather, bytes, 8, 8, h200).us;
  EXPECT_NEAR(gather, bytes * 7 / 8 / h200.time.nvlink_gbps / 1e3, 0.05 * gather);
  EXPECT_NEAR(collective_time(CollectiveKind::kAllReduce, bytes, 8, 8, h200).us, 2 * gather,
              0.05 * gather);
  EXPECT_GT(collective_time(CollectiveKind::kAllGather, bytes, 16, 8, h200).us, 5 * gather);
  EXPECT_EQ(collective_time(CollectiveKind::kAllReduce, bytes, 1, 8, h200).us, 0);
}

TEST(CollectiveTime, NamesOfBothApisAreKnown) {
  EXPECT_EQ(collective_kind("c10d::_allgather_base_"), CollectiveKind::kAllGather);
  EXPECT_EQ(collective_kind("_c10d_functional::reduce_scatter_tensor"),
            CollectiveKind::kReduceScatter);
  EXPECT_EQ(collective_kind("c10d::allreduce_"), CollectiveKind::kAllReduce);
  EXPECT_EQ(collective_kind("c10d::alltoall_base_"), CollectiveKind::kAllToAll);
}

TEST(FitRates, FindsTheRatesThatMadeATable) {
  DeviceProfile truth = gpu();
  truth.time.dram_share = 0.8;
  truth.time.kernel_us = 4;
  std::string text;
  for (const int rows : {64, 1000, 20000, 90000}) {
    for (const char* f : {"add", "mul_scalar", "exp"}) {
      const std::string line = R"({"op": "pointwise", "dtype": "f32", "cols": 4096, "rows": )" +
                               std::to_string(rows) + R"(, "f": ")" + f + "\"";
      const auto one = read_measured(line + R"(, "us": 1})");
      text += line + R"(, "us": )" + std::to_string(predict(one->calls[0], truth)) + "}\n";
    }
  }
  const auto table = read_measured(text);
  ASSERT_TRUE(table.ok());
  const DeviceProfile found = fit_rates(*table, gpu());
  EXPECT_NEAR(found.time.dram_share, 0.8, 0.03);
  EXPECT_NEAR(found.time.kernel_us, 4, 0.4);
}

TEST(ReadMeasured, ALineThatIsNoCallIsNamed) {
  const auto table = read_measured("{\"op\": \"mm\"}\nnonsense\n");
  ASSERT_FALSE(table.ok());
  EXPECT_NE(table.status().message().find("line 2"), std::string::npos);
}

}  // namespace
}  // namespace peakline
