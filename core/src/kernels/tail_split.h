// How many parts cuDNN's kernels for Hopper make of their last tiles. The result is computed in tiles,
// as many at a time as the GPU has room for; what is left for a last round would leave most SMs idle,
// so each of those tiles is computed in parts of the sum, which are added up in the workspace.
#pragma once

#include <cstdint>

#include <peakline/conv_planner.h>
#include <peakline/device_profile.h>

namespace peakline::kernels {

// The workspace of a plan, parts of the last round included. `exact` is false where the number of
// parts is modelled.
struct PlannedWorkspace {
  std::int64_t bytes = 0;
  bool exact = true;
};

PlannedWorkspace planned_workspace(const ConvQuery& query, const ConvPlan& plan,
                                   const DeviceProfile& gpu);

// A product as such a kernel sees it: tiles of the result, and steps of the sum for each.
struct TiledProduct {
  std::int64_t tiles = 0;
  std::int64_t steps = 0;
  std::int64_t step_size = 64;     // elements of the sum
  std::int64_t tile_area = 16384;  // elements
  std::int64_t at_once = 132;      // tiles
  bool bfloat16 = false;
};

// Parts of each tile of the last round; 1: they are not split.
std::int64_t parts_of_last_tiles(const TiledProduct& product);

}  // namespace peakline::kernels
