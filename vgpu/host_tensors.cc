#include "vgpu/host_tensors.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/_pin_memory_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/empty_strided_native.h>
#include <ATen/ops/set_native.h>

#include "vgpu/host_memory.h"
#include "vgpu/shape_builder.h"
#include "vgpu/values.h"

namespace peakline::vgpu {
namespace {

constexpr const char* kMaking = "making a tensor on the host";

// Bytes of a dense tensor of these sizes; 0 for sizes that torch refuses, which it does best itself.
std::uint64_t dense_bytes(at::IntArrayRef sizes, std::size_t itemsize) noexcept {
  std::uint64_t bytes = itemsize;
  for (const std::int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes))
      return 0;
  }
  return bytes;
}

at::Tensor make(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype, bool pinned) {
  const caffe2::TypeMeta type = c10::scalarTypeToTypeMeta(dtype);
  const std::uint64_t bytes = storage_bytes(sizes, strides, type.itemsize());
  return make_tensor(make_host_storage(engine_or_throw(kMaking), bytes, pinned), type, sizes,
                     strides);
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                 std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  const at::ScalarType type = at::dtype_or_default(dtype);
  if (!becomes_virtual(dense_bytes(sizes, c10::elementSize(type)), type)) {
    return at::native::empty_cpu(sizes, dtype, layout, device, pin_memory, format);
  }
  const Dims strides = dense_strides(sizes, format.value_or(at::MemoryFormat::Contiguous));
  return make(sizes, strides, type, pin_memory.value_or(false));
}

at::Tensor empty_with_strides(at::IntArrayRef sizes, at::IntArrayRef strides,
                              std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                              std::optional<at::Device> device, std::optional<bool> pin_memory) {
  const at::ScalarType type = at::dtype_or_default(dtype);
  // A tensor whose elements share bytes (expanded) is small however many elements it has.
  const bool large = sizes.size() == strides.size() &&
                     dense_bytes(sizes, c10::elementSize(type)) > 0 &&
                     becomes_virtual(storage_bytes(sizes, strides, c10::elementSize(type)), type);
  if (!large) {
    return at::native::empty_strided_cpu(sizes, strides, dtype, layout, device, pin_memory);
  }
  return make(sizes, strides, type, pin_memory.value_or(false));
}

at::Tensor pin_memory(const at::Tensor& self, std::optional<at::Device> device) {
  if (becomes_virtual(self.nbytes(), self.scalar_type())) return pinned_copy(self, device);
  return at::native::_pin_memory(self, device);
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, std::int64_t offset,
                        at::IntArrayRef sizes, at::IntArrayRef strides) {
  at::native::set_storage_cpu_(self, std::move(source), offset, sizes, strides);
  match_keys(self);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<std::int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(source), 0, {elements}, {});
}

// The one way to a tensor's keys after it has been made.
class Keys final : public c10::TensorImpl {
 public:
  static void set(c10::TensorImpl& impl, c10::DispatchKeySet keys) {
    impl.*(&Keys::key_set_) = keys;
  }
};

}  // namespace

void match_keys(const at::Tensor& self) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  const bool wanted = record_of(self) != nullptr;
  if (!self.is_cpu() || wanted == is_virtual_host(self)) return;
  const at::Tensor like = wanted ? make_tensor(self.storage(), self.dtype(), {0}, {1})
                                 : at::detail::empty_cpu({0}, self.options());
  const c10::DispatchKeySet python({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot});
  Keys::set(*impl, like.key_set() | (impl->key_set() & python));
}

at::Tensor pinned_copy(const at::Tensor& self, std::optional<at::Device>) {
  TORCH_CHECK(self.is_cpu(), "cannot pin '", self.toString(),
              "' only dense CPU tensors can be pinned");
  Engine& engine = engine_or_throw("aten::_pin_memory");
  at::Tensor pinned = make(self.sizes(), self.strides(), self.scalar_type(), true);
  copy_values(engine, pinned, self);
  return pinned;
}

void add_host_factories(torch::Library& aten) {
  aten.impl("empty.memory_format", TORCH_FN(empty));
  aten.impl("empty_strided", TORCH_FN(empty_with_strides));
  aten.impl("_pin_memory", TORCH_FN(pin_memory));
  aten.impl("set_.source_Storage", TORCH_FN(set_whole_storage));
  aten.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
}

}  // namespace peakline::vgpu
