// torch's shape functions that are written in C++.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <string>

namespace peakline::vgpu {

// The shape function of an op ("aten::add.Tensor"); null when it has none in C++. torch's dispatcher
// would answer the same, but takes a Python function where somebody has registered one.
const c10::KernelFunction* shape_function(const std::string& full_name);

}  // namespace peakline::vgpu
