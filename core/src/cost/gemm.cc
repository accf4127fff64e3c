#include "cost/gemm.h"

#include <array>
#include <cstdint>

namespace peakline::cost {
namespace {

// One way to cut the result: a block computes m by n of it. `share` of the peak is what such a block
// keeps busy: small ones load more for each product.
struct Tile {
  double m;
  double n;
  double share;
};

// Tensor cores take two matrices from shared memory: bytes loaded for each product fall with the
// tile's size, and only the largest two keep them fed.
constexpr std::array<Tile, 7> kTensorTiles{{
    {128, 256, 1.0},
    {256, 128, 1.0},
    {128, 128, 0.78},
    {64, 256, 0.67},
    {128, 64, 0.56},
    {64, 128, 0.56},
    {64, 64, 0.39},
}};
// Without tensor cores registers hold the operands, and smaller tiles are enough.
constexpr std::array<Tile, 6> kVectorTiles{{
    {128, 128, 1.0},
    {128, 64, 0.87},
    {64, 128, 0.87},
    {64, 64, 0.75},
    {64, 32, 0.58},
    {32, 32, 0.375},
}};

struct Unit {
  double tflops;
  bool tensor;
};

// Loads of fewer than 16 bytes at a time: kernels of an older generation take over.
double unaligned_share(int alignment, DType dtype) {
  const auto bytes = static_cast<double>(alignment) * static_cast<double>(size_of(dtype));
  if (bytes >= 16) return 1;
  if (bytes >= 8) return 0.32;
  if (bytes >= 4) return 0.24;
  return 0.16;
}

Unit unit_of(const Gemm& g, const Machine& machine) {
  const TimeRates& r = machine.rates();
  switch (g.dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return {r.tensor16_tflops * r.tensor_share * unaligned_share(g.alignment, g.dtype), true};
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2FNUZ:
      return {r.tensor8_tflops * r.tensor_share, true};
    case DType::kFloat64:
    case DType::kComplex128:
      return {r.f64_tflops * r.vector_share, false};
    default:
      if (g.allow_tf32) {
        return {r.tf32_tflops * r.tensor_share * unaligned_share(g.alignment, g.dtype), true};
      }
      return {r.f32_tflops * r.vector_share, false};
  }
}

// A block's time for the whole depth, when the last wave is as full as it can be; splitting the
// depth over several blocks pays where there are too few of them.
struct Plan {
  double compute_us;
  double extra_bytes;  // partial sums, written and read again
};

Plan plan_of(const Gemm& g, const Tile& tile, double splits, double sm_tflops,
             const Machine& machine) {
  const double tiles = g.batch * ceil_div(g.m, tile.m) * ceil_div(g.n, tile.n) * splits;
  const double waves = ceil_div(tiles, machine.sms());
  const double depth = ceil_div(g.k, splits);
  const double block_us = 2 * tile.m * tile.n * depth / (sm_tflops * tile.share) / 1e6;
  const double partial = splits > 1 ? g.batch * g.m * g.n * 4 * (splits + 1) : 0;
  return {waves * block_us, partial};
}

Kernel best_kernel(const Gemm& g, const Unit& unit, double bytes, const Machine& machine) {
  const double sm_tflops = unit.tflops * g.share / machine.sms();
  const Tile* first = unit.tensor ? kTensorTiles.data() : kVectorTiles.data();
  const std::size_t count = unit.tensor ? kTensorTiles.size() : kVectorTiles.size();
  const double start = machine.rates().gemm_us;
  Kernel best;
  double least = -1;
  for (std::size_t i = 0; i < count; ++i) {
    for (double splits = 1; splits <= 32 && g.k / splits >= 128; splits *= 2) {
      const Plan plan = plan_of(g, first[i], splits, sm_tflops, machine);
      const double memory = machine.memory_us(bytes) + machine.memory_us(plan.extra_bytes);
      const double late = start + (splits > 1 ? machine.rates().reduce_us : 0);
      const double us = std::max(plan.compute_us, memory) + late;
      if (least < 0 || us < least) {
        least = us;
        best = {plan.compute_us, memory, late};
      }
    }
    if (g.k < 128) {
      const Plan plan = plan_of(g, first[i], 1, sm_tflops, machine);
      const double us = std::max(plan.compute_us, machine.memory_us(bytes)) + start;
      if (least < 0 || us < least) {
        least = us;
        best = {plan.compute_us, machine.memory_us(bytes), start};
      }
    }
  }
  return best;
}

}  // namespace

int alignment_of(double a, double b, double c) noexcept {
  const auto bits = static_cast<std::uint64_t>(a) | static_cast<std::uint64_t>(b) |
                    static_cast<std::uint64_t>(c) | 8;
  return static_cast<int>(bits & (~bits + 1));
}

void add_gemm(const Gemm& g, OpTimer& op) {
  const Machine& machine = op.machine();
  if (g.batch * g.m * g.n <= 0) return;
  const auto size = static_cast<double>(size_of(g.dtype));
  const double bytes =
      g.bytes >= 0 ? g.bytes : g.batch * size * (g.m * g.k + g.k * g.n + g.m * g.n);
  const double complex = is_complex(g.dtype) ? 4 : 1;
  Kernel kernel = best_kernel(g, unit_of(g, machine), bytes, machine);
  kernel.compute_us *= complex;
  op.add(kernel, bytes, 2 * g.batch * g.m * g.n * g.k * complex);
}

}  // namespace peakline::cost
