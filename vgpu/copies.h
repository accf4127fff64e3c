// Copies between the host and virtual GPUs.
#pragma once

#include <ATen/core/Tensor.h>

namespace peakline::vgpu {

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking);
at::Scalar local_scalar_dense(const at::Tensor& self);

}  // namespace peakline::vgpu
