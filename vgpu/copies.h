// Copies between the host and virtual GPUs.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace peakline::vgpu {

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking);
at::Scalar local_scalar_dense(const at::Tensor& self);

// Told of every copy on the host whose whole numbers, or bools, had to be made up. May throw. Empty: nobody is.
void on_made_up_copy(std::function<void(const at::Tensor& copy)> listener);

}  // namespace peakline::vgpu
