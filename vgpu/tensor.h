// Tensors on the virtual GPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

#include "vgpu/storage.h"

namespace peakline::vgpu {

// A virtual tensor says it is on a CUDA device, and dispatches under PrivateUse1: no CUDA kernel is
// ever found for it, on any thread, in any build of torch. Autocast takes it for CUDA.
inline constexpr c10::DispatchKeySet kVirtualKeys({c10::DispatchKey::PrivateUse1,
                                                   c10::DispatchKey::AutocastCUDA});

inline bool is_virtual(const c10::TensorImpl& tensor) noexcept {
  return tensor.key_set().has_backend(c10::BackendComponent::PrivateUse1Bit) &&
         tensor.device_type() == c10::kCUDA;
}
inline bool is_virtual(const at::Tensor& tensor) noexcept {
  return tensor.defined() && is_virtual(*tensor.unsafeGetTensorImpl());
}

inline StorageRecord* record_of(const at::Tensor& tensor) noexcept {
  const c10::Storage& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  return storage ? record_of(*storage.unsafeGetStorageImpl()) : nullptr;
}

// Whether the tensor is all of its storage, each element once.
inline bool covers_storage(const at::Tensor& tensor) {
  const std::size_t bytes = tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes();
  return static_cast<std::size_t>(tensor.numel()) * tensor.element_size() == bytes &&
         tensor.is_non_overlapping_and_dense();
}

// A tensor over `storage` with this layout.
at::Tensor make_tensor(c10::Storage storage, caffe2::TypeMeta dtype, c10::IntArrayRef sizes,
                       c10::IntArrayRef strides, std::int64_t offset = 0);

// Bytes that a strided tensor needs, from the beginning of its storage.
std::uint64_t storage_bytes(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::size_t itemsize,
                            std::int64_t offset = 0);

// As at::empty_strided on cuda:`device`.
at::Tensor empty_strided(Engine& engine, int device, c10::ScalarType dtype, c10::IntArrayRef sizes,
                         c10::IntArrayRef strides, OpName* op);

// Gives `tensor` new sizes, and its storage room for them.
void set_sizes(Engine& engine, const at::Tensor& tensor, c10::IntArrayRef sizes,
               c10::IntArrayRef strides);

// The index of `device`, or of the current device when it names none. Throws when there is no such
// device.
int device_index(Engine& engine, c10::Device device);

}  // namespace peakline::vgpu
