// Found by asking cuDNN 9.19 for plans of products of every size, and compared with 1,088 plans that
// the same library made on an H200 (docs/accuracy.md).
#include "kernels/tail_split.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

namespace peakline::kernels {
namespace {

std::int64_t ceil_div(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }
std::int64_t round_up(std::int64_t value, std::int64_t to) { return ceil_div(value, to) * to; }

struct Tile {
  std::int64_t index;  // cuDNN's TILE_SIZE
  std::int64_t high;
  std::int64_t wide;
};

constexpr std::array<Tile, 11> kTiles{{{0, 128, 128},
                                       {1, 128, 64},
                                       {3, 256, 128},
                                       {4, 256, 64},
                                       {5, 64, 64},
                                       {6, 128, 256},
                                       {7, 64, 128},
                                       {9, 64, 256},
                                       {16, 256, 32},
                                       {18, 64, 192},
                                       {20, 256, 96}}};

std::optional<Tile> tile_of(std::int64_t index) {
  for (const Tile& tile : kTiles) {
    if (tile.index == index) return tile;
  }
  return std::nullopt;
}

// Blocks of clusters of this many that run at a time. SMs come in groups, and a cluster stays in one;
// which SMs of a group are missing differs, so these are numbers of the chip with 132 SMs.
std::int64_t blocks_at_once(std::int64_t cluster, const DeviceProfile& gpu) {
  constexpr std::array<std::int64_t, 9> kClusters132{0, 132, 66, 39, 30, 22, 17, 15, 15};
  constexpr std::int64_t kSmsPerGroup = 18;
  if (gpu.sm_count == 132 && cluster < static_cast<std::int64_t>(kClusters132.size())) {
    return kClusters132[static_cast<std::size_t>(cluster)] * cluster;
  }
  const std::int64_t groups = gpu.sm_count / kSmsPerGroup;
  const std::int64_t rest = gpu.sm_count % kSmsPerGroup;
  return std::max((groups * (kSmsPerGroup / cluster) + rest / cluster) * cluster, cluster);
}

// What adding two parts costs, in elements of the sum that could be multiplied meanwhile. Adding up
// n parts takes as many rounds as n has doublings.
std::int64_t cost_of_adding(const TiledProduct& p) {
  constexpr std::array<std::pair<std::int64_t, std::int64_t>, 4> kByArea{
      {{4096, 784}, {8192, 575}, {12288, 500}, {16384, 423}}};
  std::int64_t cost = 356;
  for (const auto& [area, elements] : kByArea) {
    if (p.tile_area <= area) {
      cost = elements;
      break;
    }
  }
  return p.bfloat16 ? 8 * cost : cost;
}

std::int64_t rounds(std::int64_t parts) {
  return static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(parts - 1)));
}

// Nothing but the last round: the quickest number of parts, or, of long sums, one per thousand.
std::int64_t parts_of_only_round(const TiledProduct& p, std::int64_t most) {
  constexpr std::int64_t kMostParts = 128;
  constexpr std::int64_t kLongSum = 1024;
  constexpr std::int64_t kFewParts = 8;
  const std::int64_t by_length =
      std::min({most, p.steps / (kLongSum / p.step_size + 1), kMostParts});
  if (by_length > kFewParts) return by_length;
  const std::int64_t adding = cost_of_adding(p);
  std::int64_t best = 1;
  std::int64_t least = p.steps * p.step_size;
  for (std::int64_t parts = 2; parts <= most; ++parts) {
    const std::int64_t cost = ceil_div(p.steps, parts) * p.step_size + adding * rounds(parts);
    if (cost < least) {
      least = cost;
      best = parts;
    }
  }
  return best;
}

// After full rounds: adding is half hidden behind them.
std::int64_t parts_after_full_rounds(const TiledProduct& p, std::int64_t most) {
  constexpr std::int64_t kLeastSum = 128;
  const std::int64_t sum = p.steps * p.step_size;
  const std::int64_t adding = cost_of_adding(p);
  if (4 * sum > 17 * adding) return std::min(most, sum / kLeastSum);
  if (20 * sum > 63 * adding) return std::min<std::int64_t>(most, 8);
  if (sum > 2 * adding) return std::min<std::int64_t>(most, 4);
  return sum > adding ? std::min<std::int64_t>(most, 2) : 1;
}

std::int64_t product_of(const std::vector<std::int64_t>& sizes, std::size_t first) {
  std::int64_t product = 1;
  for (std::size_t i = first; i < sizes.size(); ++i) product *= sizes[i];
  return product;
}

std::int64_t knob(const ConvPlan& plan, const char* name) {
  const auto found = plan.knobs.find(name);
  return found == plan.knobs.end() ? -1 : found->second;
}

// The convolution as a product: pixels by outputs, pixels by inputs, or outputs by inputs of every
// pixel of the window.
TiledProduct tiled(const ConvQuery& q, const ConvPlan& plan, const Tile& tile,
                   const DeviceProfile& gpu) {
  const std::int64_t inputs = q.weight[1];
  const std::int64_t groups = q.input[1] / std::max<std::int64_t>(inputs, 1);
  const std::int64_t outputs = q.weight[0] / std::max<std::int64_t>(groups, 1);
  const std::int64_t window = product_of(q.weight, 2);
  const std::int64_t out_pixels = q.output[0] * product_of(q.output, 2);
  const std::int64_t in_pixels = q.input[0] * product_of(q.input, 2);
  TiledProduct p;
  p.bfloat16 = q.dtype == DType::kBFloat16;
  p.step_size = is_reduced_float(q.dtype) && knob(plan, "TILEK") == 1 ? 64 : 32;
  p.tile_area = tile.high * tile.wide;
  std::int64_t rows = ceil_div(out_pixels, tile.high);
  std::int64_t columns = ceil_div(outputs, tile.wide);
  p.steps = ceil_div(inputs, p.step_size) * window;
  if (q.pass == ConvPass::kInputGradient) {
    rows = ceil_div(in_pixels, tile.high);
    columns = ceil_div(inputs, tile.wide);
    p.steps = ceil_div(outputs, p.step_size) * window;
  } else if (q.pass == ConvPass::kWeightGradient) {
    rows = ceil_div(outputs, tile.high);
    columns = ceil_div(inputs, tile.wide) * window;
    p.steps = ceil_div(out_pixels, p.step_size);
  }
  const std::int64_t high = std::max<std::int64_t>(knob(plan, "TILE_CGA_M"), 1);
  const std::int64_t wide = std::max<std::int64_t>(knob(plan, "TILE_CGA_N"), 1);
  p.tiles = round_up(rows, high) * round_up(columns, wide) * groups;
  p.at_once = blocks_at_once(high * wide, gpu);
  return p;
}

// Where tiles do not all run at once, blocks take the next from a counter. What else is in a workspace
// comes in multiples of 16 bytes.
constexpr std::int64_t kCounter = 131;

std::int64_t without_counter(std::int64_t bytes) {
  return bytes % 16 == kCounter % 16 ? bytes - kCounter : bytes;
}

bool all_at_once(const TiledProduct& p) {
  constexpr std::int64_t kSmallTile = 8192;  // two of them fit an SM
  return p.tiles <= (p.tile_area <= kSmallTile ? 2 * p.at_once : p.at_once);
}

}  // namespace

std::int64_t parts_of_last_tiles(const TiledProduct& p) {
  const std::int64_t left = p.tiles % p.at_once;
  if (left == 0 || p.steps <= 0) return 1;
  const std::int64_t most = p.at_once / left;
  if (most < 2) return 1;
  const std::int64_t parts =
      p.tiles < p.at_once ? parts_of_only_round(p, most) : parts_after_full_rounds(p, most);
  // Parts are of equal length but the last, which may leave fewer of them.
  return ceil_div(p.steps, ceil_div(p.steps, std::max<std::int64_t>(parts, 1)));
}

PlannedWorkspace planned_workspace(const ConvQuery& query, const ConvPlan& plan,
                                   const DeviceProfile& gpu) {
  constexpr std::int64_t kSplits = 0;  // of the knob WORKSPACE
  constexpr std::int64_t kFlags = 159;
  if (knob(plan, "TILE_CGA_M") < 0 || knob(plan, "WORKSPACE") < 0) return {plan.workspace, true};
  const auto tile = tile_of(knob(plan, "TILE_SIZE"));
  if (!tile) return {plan.unsplit_workspace, false};
  const TiledProduct p = tiled(query, plan, *tile, gpu);
  const std::int64_t converted = without_counter(plan.unsplit_workspace);
  const bool may_split = knob(plan, "WORKSPACE") == kSplits;
  const std::int64_t parts = may_split ? parts_of_last_tiles(p) : 1;
  if (parts < 2) return {converted + (all_at_once(p) ? 0 : kCounter), !may_split};
  const std::int64_t split = p.tiles % p.at_once * parts;
  return {converted + split * p.tile_area * 4 + split * 4 + kFlags, false};
}

}  // namespace peakline::kernels
