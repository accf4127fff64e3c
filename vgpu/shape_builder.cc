#include "vgpu/shape_builder.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

namespace peakline::vgpu {

Dims dense_strides(c10::IntArrayRef sizes, c10::MemoryFormat format) {
  if (format == c10::MemoryFormat::ChannelsLast && sizes.size() == 4) {
    const auto strides = c10::get_channels_last_strides_2d(sizes);
    return {strides.begin(), strides.end()};
  }
  if (format == c10::MemoryFormat::ChannelsLast3d && sizes.size() == 5) {
    const auto strides = c10::get_channels_last_strides_3d(sizes);
    return {strides.begin(), strides.end()};
  }
  Dims strides(sizes.size());
  std::int64_t next = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = next;
    next *= std::max<std::int64_t>(sizes[i], 1);
  }
  return strides;
}

Layout layout_of(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return {impl.dtype(), Dims(impl.sizes().begin(), impl.sizes().end()),
          Dims(impl.strides().begin(), impl.strides().end()), impl.storage_offset()};
}

void ShapeBuilder::fresh(c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  Output& output = entry_.outputs.emplace_back();
  output.kind = Output::Kind::kFresh;
  output.source = static_cast<int>(entry_.fresh.size());
  output.layout = {c10::scalarTypeToTypeMeta(dtype), Dims(sizes.begin(), sizes.end()),
                   Dims(strides.begin(), strides.end()), 0};
  entry_.fresh.push_back(storage_bytes(sizes, strides, output.layout.dtype.itemsize()));
}

void ShapeBuilder::fresh(c10::ScalarType dtype, c10::IntArrayRef sizes, c10::MemoryFormat format) {
  fresh(dtype, sizes, dense_strides(sizes, format));
}

void ShapeBuilder::fresh_like(const at::Tensor& tensor) {
  fresh_like(tensor, tensor.scalar_type());
}

void ShapeBuilder::fresh_like(const at::Tensor& tensor, c10::ScalarType dtype) {
  if (tensor.is_non_overlapping_and_dense()) return fresh(dtype, tensor.sizes(), tensor.strides());
  const std::vector<std::int64_t> strides =
      at::infer_dense_strides(tensor.sizes(), tensor.strides());
  fresh(dtype, tensor.sizes(), strides);
}

void ShapeBuilder::value(c10::IValue value) {
  Output& output = entry_.outputs.emplace_back();
  output.kind = Output::Kind::kValue;
  output.value = std::move(value);
}

void ShapeBuilder::parts_of_one(const c10::IValue& list) {
  Output& output = entry_.outputs.emplace_back();
  output.kind = Output::Kind::kList;
  std::int64_t elements = 0;
  std::size_t itemsize = 1;
  for (const c10::IValue& item : list.toListRef()) {
    const at::Tensor& like = item.toTensor();
    Output& part = output.items.emplace_back();
    part.kind = Output::Kind::kFresh;
    part.source = static_cast<int>(entry_.fresh.size());
    part.layout = {like.dtype(), Dims(like.sizes().begin(), like.sizes().end()),
                   dense_strides(like.sizes(), c10::MemoryFormat::Contiguous), elements};
    elements += like.numel();
    itemsize = like.element_size();
  }
  entry_.fresh.push_back(static_cast<std::uint64_t>(elements) * itemsize);
}

void ShapeBuilder::list_like(const c10::IValue& list) {
  std::vector<Output> items;
  for (const c10::IValue& item : list.toListRef()) {
    fresh_like(item.toTensor());
    items.push_back(std::move(entry_.outputs.back()));
    entry_.outputs.pop_back();
  }
  Output& output = entry_.outputs.emplace_back();
  output.kind = Output::Kind::kList;
  output.items = std::move(items);
}

void ShapeBuilder::no_tensors() { entry_.outputs.emplace_back().kind = Output::Kind::kList; }

void ShapeBuilder::argument(int index) {
  Output& output = entry_.outputs.emplace_back();
  output.kind = Output::Kind::kArgument;
  output.source = index;
}

}  // namespace peakline::vgpu
