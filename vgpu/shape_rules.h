// Shape rules written by hand: for ops that have no shape function in torch's C++.
#pragma once

#include <string>
#include <string_view>

#include "vgpu/call.h"

namespace peakline::vgpu {

// Null when there is none for this op ("aten::convolution_backward").
ShapeRule rule_for(std::string_view name);

// For ops whose shape functions torch has in Python only, by their full names: asked where the
// dispatcher knows none, as in a C++ program. Null when there is none.
ShapeRule rule_without_python(const std::string& full_name);

}  // namespace peakline::vgpu
