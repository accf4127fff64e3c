// Rates of GPUs that nobody has measured.
#include "profile/profile_fields.h"

namespace peakline::profile {
namespace {

// Operations that the tensor cores of one multiprocessor do in a cycle, in 16 bits.
double tensor_flops_per_cycle(int capability) {
  if (capability >= 100 && capability < 120) return 8192;
  if (capability >= 90 && capability < 100) return 4096;
  if (capability == 80) return 2048;
  return capability >= 75 ? 1024 : 256;
}

// What follows from the number of multiprocessors and the generation.
TimeRates from_generation(const DeviceProfile& p) {
  TimeRates r;
  r.sm_clock_ghz = p.time.sm_clock_ghz > 0 ? p.time.sm_clock_ghz : 1.7;
  const double cycles = p.sm_count * r.sm_clock_ghz / 1e3;  // TFLOP/s for one operation a cycle
  r.tensor16_tflops = cycles * tensor_flops_per_cycle(p.capability());
  r.f32_tflops = cycles * 256;
  r.f64_tflops = r.f32_tflops / (p.minor == 0 && p.major >= 8 ? 2 : 64);
  r.dram_gbps = p.sm_count * 15.0;
  r.l2_gbps = p.sm_count * r.sm_clock_ghz * 35;
  r.sm_gbps = r.sm_clock_ghz * 35;
  return r;
}

// Of an op that autograd records: the middle of ten ops on one-element tensors of the CPU.
constexpr double kPlainShare = 0.75;

// Shares and latencies of an H200, as measured: kernels and drivers are the same everywhere. Hosts
// differ more than GPUs do.
constexpr TimeRates kLikeAnH200{.tensor_share = 0.8,
                                .vector_share = 0.8,
                                .dram_share = 0.91,
                                .row_share = 0.66,
                                .kernel_us = 2.7,
                                .gemm_us = 1.4,
                                .reduce_us = 2.5,
                                .block_us = 1,
                                .event_us = 1.28,
                                .pcie_gbps = 25,
                                .pcie_us = 8,
                                .pageable_gbps = 10,
                                .nvlink_gbps = 20,
                                .nvlink_us = 2,
                                .network_gbps = 25,
                                .network_us = 8,
                                .host_op_us = 13.7,
                                .host_backward_us = 14.9,
                                .host_python_us = 1.01,
                                .host_launch_us = 5.7,
                                .host_sync_us = 8.4,
                                .host_gbps = 10,
                                .host_random_ns = 4};

}  // namespace

void complete_rates(DeviceProfile& profile) {
  const TimeRates derived = from_generation(profile);
  for (const Rate& rate : kRates) {
    double& value = profile.time.*rate.member;
    if (value >= 0) continue;
    value = derived.*rate.member >= 0 ? derived.*rate.member : kLikeAnH200.*rate.member;
    if (value < 0 && rate.key == "tensor8_tflops") value = 2 * profile.time.tensor16_tflops;
    if (value < 0 && rate.key == "tf32_tflops") value = profile.time.tensor16_tflops / 2;
    if (value < 0 && rate.key == "host_plain_us") value = kPlainShare * profile.time.host_op_us;
    profile.provenance.push_back({std::string(rate.key), NumberSource::kEstimated});
  }
}

}  // namespace peakline::profile
