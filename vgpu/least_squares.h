// torch.linalg.lstsq on CUDA, which knows one way of solving: by a QR factorisation.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>
#include <tuple>

namespace peakline::vgpu {

std::tuple<at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor&> least_squares(
    const at::Tensor& self, const at::Tensor& b, std::optional<double> rcond,
    std::optional<std::string_view> driver, at::Tensor& solution, at::Tensor& residuals,
    at::Tensor& rank, at::Tensor& singular_values);

}  // namespace peakline::vgpu
