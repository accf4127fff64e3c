#include "capture/tensor_places.h"

#include <ATen/ATen.h>

#include <atomic>

#include "capture/fake_storage.h"

namespace peakline::capture {
namespace {

std::atomic<WrapperParts> g_wrapper_parts{nullptr};

std::vector<at::Tensor> sparse_parts(const at::Tensor& tensor) {
  const auto layout = tensor.layout();
  if (layout == at::kSparse) return {tensor._indices(), tensor._values()};
  const bool by_row = layout == at::kSparseCsr || layout == at::kSparseBsr;
  return {by_row ? tensor.crow_indices() : tensor.ccol_indices(),
          by_row ? tensor.col_indices() : tensor.row_indices(), tensor.values()};
}

bool is_sparse(const at::Tensor& tensor) {
  const auto layout = tensor.layout();
  return layout == at::kSparse || layout == at::kSparseCsr || layout == at::kSparseCsc ||
         layout == at::kSparseBsr || layout == at::kSparseBsc;
}

}  // namespace

void set_wrapper_parts(WrapperParts parts) noexcept {
  g_wrapper_parts.store(parts, std::memory_order_release);
}

Place place_of(const c10::StorageImpl& storage, Devices& devices) {
  if (const FakeBlock* fake = fake_block(storage))
    return {fake->device, fake->address, fake->bytes};
  const void* data = storage.data_ptr().get();
  if (data == nullptr || storage.device().is_meta()) return {};
  return {devices.of(storage.device()), reinterpret_cast<std::uint64_t>(data), storage.nbytes()};
}

bool for_each_storage(const at::Tensor& tensor,
                      const std::function<void(c10::StorageImpl&)>& found) {
  if (!tensor.defined()) return true;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->has_storage() && impl->unsafe_storage()) {
    c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    if (storage->data_ptr().get_context() != nullptr || storage->data_ptr().get() != nullptr) {
      found(*storage);
      return true;
    }
  }
  std::vector<at::Tensor> parts;
  try {
    if (impl->key_set().has(c10::DispatchKey::Python)) {
      const WrapperParts parts_of = g_wrapper_parts.load(std::memory_order_acquire);
      if (parts_of == nullptr) return false;
      parts = parts_of(tensor);
    } else if (is_sparse(tensor)) {
      parts = sparse_parts(tensor);
    }
  } catch (const std::exception&) {  // a Python error goes with it
    return false;
  }
  bool all = true;
  for (const at::Tensor& part : parts) all &= for_each_storage(part, found);
  return all;
}

}  // namespace peakline::capture
