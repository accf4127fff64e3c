#include "vgpu/tensor.h"

namespace peakline::vgpu {

at::Tensor make_tensor(c10::Storage storage, caffe2::TypeMeta dtype, c10::IntArrayRef sizes,
                       c10::IntArrayRef strides, std::int64_t offset) {
  constexpr c10::DispatchKeySet kHostKeys(
      {c10::DispatchKey::PrivateUse1, c10::DispatchKey::AutocastCPU});
  const c10::DispatchKeySet keys = storage.device_type() == c10::kCPU ? kHostKeys : kVirtualKeys;
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

std::uint64_t storage_bytes(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::size_t itemsize,
                            std::int64_t offset) {
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    std::uint64_t reach = 0;
    const bool too_large = __builtin_mul_overflow(static_cast<std::uint64_t>(sizes[i] - 1),
                                                  static_cast<std::uint64_t>(strides[i]), &reach) ||
                           __builtin_add_overflow(last, reach, &last);
    TORCH_CHECK(!too_large, "Storage size calculation overflowed with sizes=", sizes,
                " and strides=", strides);
  }
  const std::uint64_t elements = static_cast<std::uint64_t>(offset) + last + 1;
  TORCH_CHECK(elements < (std::uint64_t{1} << 62) / itemsize,
              "Storage size calculation overflowed with sizes=", sizes, " and strides=", strides);
  return elements * itemsize;
}

at::Tensor empty_strided(Engine& engine, int device, c10::ScalarType dtype, c10::IntArrayRef sizes,
                         c10::IntArrayRef strides, OpName* op) {
  const caffe2::TypeMeta type = c10::scalarTypeToTypeMeta(dtype);
  const std::uint64_t bytes = storage_bytes(sizes, strides, type.itemsize());
  return make_tensor(make_storage(engine, device, bytes, op), type, sizes, strides);
}

void set_sizes(Engine& engine, const at::Tensor& tensor, c10::IntArrayRef sizes,
               c10::IntArrayRef strides) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const std::uint64_t bytes =
      storage_bytes(sizes, strides, impl->dtype().itemsize(), impl->storage_offset());
  c10::StorageImpl& storage = *impl->unsafe_storage().unsafeGetStorageImpl();
  if (bytes > storage.nbytes()) resize_storage(engine, storage, bytes);
  impl->set_sizes_and_strides(sizes, strides);
}

int device_index(Engine& engine, c10::Device device) {
  const int index = device.has_index() ? device.index() : ThisThread::device();
  TORCH_CHECK(index >= 0 && index < engine.devices(),
              "CUDA error: invalid device ordinal: cuda:", index,
              " was asked for, and the virtual "
              "machine has ",
              engine.devices(), " device(s)");
  return index;
}

}  // namespace peakline::vgpu
