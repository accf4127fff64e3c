#pragma once

namespace peakline::vgpu {

// Whether this thread computes values on the host at the moment (HostRun): those tensors are ours,
// and real.
bool in_host_run() noexcept;

}  // namespace peakline::vgpu
