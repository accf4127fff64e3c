#include "vgpu/sparse/flatten_indices.h"

#include "vgpu/shape_builder.h"
#include "vgpu/values.h"
#include "vgpu/values/host_run.h"

namespace peakline::vgpu {

// One kernel over a range of numbers, which become the places (FlattenIndicesCommon.h).
at::Tensor flatten_indices(const at::Tensor& indices, at::IntArrayRef sizes) {
  Engine& engine = engine_or_throw("aten::_coalesce");
  at::Tensor flat = at::arange(indices.size(1), indices.options().dtype(at::kLong));
  const std::optional<at::Tensor> known = known_values(indices);
  forget_values(flat);
  if (!known) return flat;
  const HostRun host;
  at::Tensor places = at::zeros({indices.size(1)}, at::kLong);
  const Dims strides = dense_strides(sizes, at::MemoryFormat::Contiguous);
  for (std::int64_t d = 0; d < indices.size(0); ++d) {
    places = places.add(known->select(0, d).to(at::kLong), strides[static_cast<std::size_t>(d)]);
  }
  give_values(engine, flat, places);
  return flat;
}

}  // namespace peakline::vgpu
