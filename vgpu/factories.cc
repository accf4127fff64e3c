// Making tensors: at::empty and its like are where all memory of a program comes from.
#include "vgpu/factories.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>

#include "vgpu/shape_builder.h"
#include "vgpu/values.h"

namespace peakline::vgpu {
namespace {

Engine& engine() { return engine_or_throw("making a tensor on cuda"); }

void refuse_pinned(std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device,
                 std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  static OpName op{"aten::empty", 0, {}};
  refuse_pinned(pin_memory);
  for (const std::int64_t size : sizes) {
    TORCH_CHECK(size >= 0, "Trying to create tensor with negative dimension ", size, ": ", sizes);
  }
  const Dims strides = dense_strides(sizes, format.value_or(at::MemoryFormat::Contiguous));
  return empty_strided(engine(), device_index(engine(), device.value_or(at::Device(at::kCUDA))),
                       at::dtype_or_default(dtype), sizes, strides, &op);
}

at::Tensor empty_with_strides(at::IntArrayRef sizes, at::IntArrayRef strides,
                              std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                              std::optional<at::Device> device, std::optional<bool> pin_memory) {
  static OpName op{"aten::empty_strided", 0, {}};
  refuse_pinned(pin_memory);
  TORCH_CHECK(sizes.size() == strides.size(), "mismatch in length of strides and shape");
  return empty_strided(engine(), device_index(engine(), device.value_or(at::Device(at::kCUDA))),
                       at::dtype_or_default(dtype), sizes, strides, &op);
}

// Small tables of indices: computed on the host, since they depend on numbers alone.
at::Tensor on_device(const at::Tensor& host, std::optional<at::Device> device) {
  static OpName op{"aten::tril_indices", 0, {}};
  Engine& gpu = engine();
  at::Tensor tensor = empty_strided(gpu, device_index(gpu, device.value_or(at::Device(at::kCUDA))),
                                    host.scalar_type(), host.sizes(), host.strides(), &op);
  give_values(gpu, tensor, host);
  return tensor;
}

at::Tensor tril_indices(std::int64_t row, std::int64_t col, std::int64_t offset,
                        std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                        std::optional<at::Device> device, std::optional<bool>) {
  return on_device(
      at::tril_indices(row, col, offset, dtype.value_or(at::kLong), layout, at::kCPU, std::nullopt),
      device);
}

at::Tensor triu_indices(std::int64_t row, std::int64_t col, std::int64_t offset,
                        std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                        std::optional<at::Device> device, std::optional<bool>) {
  return on_device(
      at::triu_indices(row, col, offset, dtype.value_or(at::kLong), layout, at::kCPU, std::nullopt),
      device);
}

// The rules of recurrent networks count cuDNN's generator state; here it is only a name for it.
at::Tensor dropout_state(double, bool, std::int64_t, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device,
                         std::optional<bool>) {
  return empty({0}, dtype, std::nullopt, device, std::nullopt, std::nullopt);
}

// Zeros that nobody has written: autograd makes them where a gradient is known to be nothing. They
// have no memory, and torch's own code sees to it that none is read.
at::Tensor zeros_without_memory(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                                std::optional<at::Layout>, std::optional<at::Device> device,
                                std::optional<bool>) {
  const caffe2::TypeMeta type = c10::scalarTypeToTypeMeta(at::dtype_or_default(dtype));
  const int index = device_index(engine(), device.value_or(at::Device(at::kCUDA)));
  const Dims strides = dense_strides(sizes, at::MemoryFormat::Contiguous);
  const auto bytes = static_cast<std::int64_t>(storage_bytes(sizes, strides, type.itemsize()));
  c10::Storage storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), c10::SymInt(bytes),
      c10::DataPtr(nullptr, at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index))),
      &virtual_allocator(), /*resizable=*/true);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), kVirtualKeys.add(c10::DispatchKey::ZeroTensor), type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

}  // namespace

void add_factories(torch::Library& cuda) {
  cuda.impl("empty.memory_format", TORCH_FN(empty));
  cuda.impl("empty_strided", TORCH_FN(empty_with_strides));
  cuda.impl("_cudnn_init_dropout_state", TORCH_FN(dropout_state));
  cuda.impl("_efficientzerotensor", TORCH_FN(zeros_without_memory));
  cuda.impl("tril_indices", TORCH_FN(tril_indices));
  cuda.impl("triu_indices", TORCH_FN(triu_indices));
}

}  // namespace peakline::vgpu
