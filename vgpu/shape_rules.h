// Shape rules written by hand: for ops that have no shape function in torch's C++.
#pragma once

#include <string_view>

#include "vgpu/call.h"

namespace peakline::vgpu {

// Null when there is none for this op ("aten::convolution_backward").
ShapeRule rule_for(std::string_view name);

}  // namespace peakline::vgpu
