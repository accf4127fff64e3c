// Entering and leaving the virtual GPU.
#pragma once

#include <peakline/status.h>

#include "vgpu/engine.h"

namespace peakline::vgpu {

// From here to leave(), CUDA devices of this process are virtual, on all threads. At most one at a
// time. Needs the GIL, and so does leave().
Status enter(const EngineOptions& options);
// torch is as it was before. Tensors that are still alive stay, and can be let go of; using them is
// an error that says so. Does nothing when no virtual GPU is on.
void leave();

}  // namespace peakline::vgpu
