#include "vgpu/values/value.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>

#include <mutex>

#include "vgpu/values/computation.h"
#include "vgpu/values/host_run.h"

namespace peakline::vgpu {
namespace {

// One thread evaluates at a time. Never held while Python is asked for anything.
std::recursive_mutex& evaluation() {
  static auto* const kMutex = new std::recursive_mutex;
  return *kMutex;
}

}  // namespace

c10::Storage host_storage(std::uint64_t bytes) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                               c10::SymInt(static_cast<std::int64_t>(bytes)),
                                               c10::GetDefaultCPUAllocator(), true);
}

at::Tensor host_view(const c10::Storage& storage, caffe2::TypeMeta dtype, c10::IntArrayRef sizes,
                     c10::IntArrayRef strides, std::int64_t offset) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), dtype);
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return view;
}

ValuePtr Value::of_bytes(c10::Storage bytes) {
  auto value = std::make_shared<Value>();
  value->exact_ = true;
  value->settled_ = true;
  value->held_ = bytes.nbytes();
  value->known_.bytes = std::move(bytes);
  return value;
}

ValuePtr Value::of_constant(const c10::Scalar& number, c10::ScalarType dtype, std::uint64_t size,
                            bool few) {
  auto value = std::make_shared<Value>();
  value->exact_ = few;
  value->dtype_ = dtype;
  value->constant_ = number;
  value->size_ = size;
  value->held_ = few ? size : 0;
  return value;
}

ValuePtr Value::of_range(Range range, c10::ScalarType dtype, bool whole, bool picked) {
  auto value = std::make_shared<Value>();
  value->settled_ = true;
  value->dtype_ = dtype;
  value->picked_ = picked;
  value->whole_ = whole;
  value->range_ = range;
  return value;
}

ValuePtr Value::deferred(std::shared_ptr<Computation> from, int slot, c10::ScalarType dtype,
                         bool exact) {
  auto value = std::make_shared<Value>();
  value->exact_ = exact;
  value->dtype_ = dtype;
  value->picked_ = from->moves_picks();
  value->assumed_ = from->assumed();
  value->depth_ = from->depth();
  value->held_ = from->held();
  value->from_ = std::move(from);
  value->slot_ = slot;
  return value;
}

Known Value::constant_bytes() const {
  if (!exact()) {
    const at::Tensor number = at::scalar_tensor(*constant_, dtype_);
    if (!has_bounds(dtype_)) return {};
    return {{}, fixed_bounds(number)};
  }
  const c10::Storage bytes = host_storage(size_);
  const caffe2::TypeMeta type = c10::scalarTypeToTypeMeta(dtype_);
  const auto elements = static_cast<std::int64_t>(size_ / type.itemsize());
  host_view(bytes, type, {elements}, {1}, 0).fill_(*constant_);
  return {bytes, {}};
}

void Value::settle() {
  const HostRun guard;
  if (constant_) {
    known_ = constant_bytes();
  } else {
    known_ = from_->result(slot_);
    from_.reset();
  }
  exact_ = static_cast<bool>(known_.bytes);
  depth_ = 0;
  held_ = known_.bytes ? known_.bytes.nbytes() : 0;
  settled_ = true;
}

Known Value::evaluate() {
  const std::lock_guard guard(evaluation());
  if (!settled_) settle();
  if (!range_) return known_;
  const HostRun host;
  return {{}, uniform_bounds(whole_ ? c10::kLong : dtype_, *range_)};
}

}  // namespace peakline::vgpu
