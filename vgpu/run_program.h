// Does to the simulated allocator what the op would do to the real one.
#pragma once

#include "vgpu/call.h"
#include "vgpu/shape_cache.h"

namespace peakline::vgpu {

// Allocates what `entry` says, in its order, and gives the op's results.
torch::jit::Stack run_program(Engine& engine, const Call& call, OpName& op,
                              const ShapeEntry& entry);

// Allocates what `call` takes beside results, on the current stream of `device`: for code that makes
// the results itself.
void run_scratch(Engine& engine, int device, const OpCall& call, OpName& op);

}  // namespace peakline::vgpu
