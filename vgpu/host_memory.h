// The host's memory while a virtual GPU is on: large tensors have addresses, and no pages.
//
// The address space is real (a mapping that nothing is charged for), so code outside torch's ops may
// read it and finds zeros. Ops never touch it: a virtual host tensor has the dispatch key of the
// virtual GPU's tensors and the device "cpu".
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>

#include "vgpu/engine.h"

namespace peakline::vgpu {

// In place of a GPU's number: StorageRecord::device and Call::device.
inline constexpr int kHost = -1;

inline bool is_virtual_host(const at::Tensor& tensor) noexcept {
  if (!tensor.defined()) return false;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return impl.key_set().has_backend(c10::BackendComponent::PrivateUse1Bit) &&
         impl.device_type() == c10::kCPU;
}

// Whether host tensors are made virtual from now on.
void set_virtual_host(bool on) noexcept;
// Whether a tensor of so many bytes would be.
bool becomes_virtual(std::uint64_t bytes, c10::ScalarType dtype) noexcept;

// Address space of `bytes` bytes that reads as zeros, written down as an allocation on the host.
void* reserve_host(std::uint64_t bytes, bool pinned);
void give_back_host(void* data) noexcept;

// Counts the bytes of a storage that somebody else made, a mapped file for one, as allocated on the
// host until the storage is gone.
void count_on_host(c10::StorageImpl& storage);

// A storage there (storage.cc).
c10::Storage make_host_storage(Engine& engine, std::uint64_t bytes, bool pinned);

}  // namespace peakline::vgpu
