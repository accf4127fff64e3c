#include "vgpu/values.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/CPUAllocator.h>

#include "vgpu/meta_run.h"

namespace peakline::vgpu {
namespace {

// From torch's own allocator, which no recording watches: the program did not ask for these bytes.
c10::Storage host_storage(std::uint64_t bytes) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                               c10::SymInt(static_cast<std::int64_t>(bytes)),
                                               c10::GetDefaultCPUAllocator(), true);
}

at::Tensor host_view(const c10::Storage& storage, const c10::TensorImpl& like) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), like.dtype());
  c10::TensorImpl* made = view.unsafeGetTensorImpl();
  made->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_wrapped_number()) made->set_wrapped_number(true);
  return view;
}

// An out= argument: its old values do not matter, only its place.
at::Tensor stand_in_for_output(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return host_view(host_storage(impl.unsafe_storage().nbytes()), impl);
}

}  // namespace

at::Tensor values_of(const at::Tensor& tensor) {
  return host_view(record_of(tensor)->values, *tensor.unsafeGetTensorImpl());
}

bool prepare_values(Engine& engine, const at::Tensor& tensor) {
  StorageRecord* record = record_of(tensor);
  if (record == nullptr) return false;
  if (record->values) return true;
  const std::size_t bytes = tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes();
  if (bytes > engine.value_bytes()) return false;
  // A part of a storage whose rest is not known stays unknown.
  if (static_cast<std::size_t>(tensor.numel()) * tensor.element_size() != bytes) return false;
  if (!tensor.is_non_overlapping_and_dense()) return false;
  record->values = host_storage(bytes);
  return true;
}

void give_values(Engine& engine, const at::Tensor& tensor, const at::Tensor& values) {
  StorageRecord* record = record_of(tensor);
  if (record == nullptr) return;
  const std::size_t bytes = tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes();
  const c10::Storage& from = values.unsafeGetTensorImpl()->unsafe_storage();
  const bool same_place = from.nbytes() == bytes && values.strides() == tensor.strides() &&
                          values.storage_offset() == tensor.storage_offset();
  if (same_place && bytes <= engine.value_bytes()) {
    record->values = from;
    return;
  }
  record->values = c10::Storage();
  if (bytes > engine.value_bytes()) return;
  record->values = host_storage(bytes);  // nobody else looks at what the tensor does not cover
  values_of(tensor).copy_(values);
}

bool reads_only_values(const Call& call) noexcept {
  if (call.info.random || call.info.written > (std::uint64_t{1} << 62)) return false;
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    const at::Tensor& tensor = *call.tensors[i];
    if (!tensor.defined() || call.only_writes(i)) continue;
    if (is_virtual(tensor) ? !has_values(tensor) : !tensor.is_cpu()) return false;
  }
  return true;
}

std::optional<ValueRun> run_on_values(Engine& engine, const Call& call) {
  ValueRun run;
  const auto replace = [&](const at::Tensor& tensor, std::size_t number) -> at::Tensor {
    at::Tensor stand_in = tensor;
    if (is_virtual(tensor)) {
      stand_in = call.only_writes(number) ? stand_in_for_output(tensor) : values_of(tensor);
    }
    run.stand_ins.push_back(stand_in);
    return stand_in;
  };
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    if (!call.only_writes(i) || !is_virtual(*call.tensors[i])) continue;
    if (call.tensors[i]->storage().nbytes() > engine.value_bytes()) return std::nullopt;
  }
  run.results = with_stand_ins(call, c10::Device(c10::kCPU), replace);
  try {
    const at::AutoDispatchBelowADInplaceOrView below;
    call.op.callBoxed(&run.results);
  } catch (const c10::Error&) {
    // Not for this type on a CPU, or wrong arguments, which the shape function reports better.
    return std::nullopt;
  }
  engine.counters().values.fetch_add(1, std::memory_order_relaxed);
  return run;
}

}  // namespace peakline::vgpu
