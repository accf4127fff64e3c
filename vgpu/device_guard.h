// What torch asks of a device type, answered for virtual GPUs.
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace peakline::vgpu {

// torch's entry for CUDA while a virtual GPU is on. One object, never destroyed. An event is done
// as soon as it is recorded: the virtual GPU is never behind the host.
const c10::impl::DeviceGuardImplInterface& virtual_guard();

}  // namespace peakline::vgpu
