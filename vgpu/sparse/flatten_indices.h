// Places of a COO tensor as one number each: torch's C++ asks this function instead of an op.
#pragma once

#include <ATen/ATen.h>
#include <ATen/native/DispatchStub.h>

namespace at::native {
// torch declares it in a header that it does not install.
using flatten_indices_fn = Tensor (*)(const Tensor&, IntArrayRef);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)
}  // namespace at::native

namespace peakline::vgpu {

// `indices` is [dimensions, elements], `sizes` the sizes of these dimensions.
at::Tensor flatten_indices(const at::Tensor& indices, at::IntArrayRef sizes);

inline auto& flatten_indices_stub() { return at::native::flatten_indices_stub; }

}  // namespace peakline::vgpu
