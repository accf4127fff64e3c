#include "vgpu/hand_written.h"

#include <ATen/native/Resize.h>
#include <ATen/native/TensorConversions.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <torch/csrc/autograd/graph_task.h>

#include "vgpu/attention_choice.h"
#include "vgpu/copies.h"
#include "vgpu/ctc_loss.h"
#include "vgpu/host_memory.h"
#include "vgpu/host_tensors.h"
#include "vgpu/least_squares.h"
#include "vgpu/shape_builder.h"
#include "vgpu/values.h"
#include "vgpu/write_times.h"

namespace peakline::vgpu {
namespace {

Engine& engine(const char* op) { return engine_or_throw(op); }

at::Tensor& fill_scalar(at::Tensor& self, const at::Scalar& value) {
  Engine& gpu = engine("aten::fill_");
  tell_clock_of_write(gpu, "aten::fill_", self);
  fill_values(gpu, self, value);
  return self;
}

at::Tensor& fill_tensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
              value.dim(), " dimensions.");
  copy_values(engine("aten::fill_"), self, value);
  return self;
}

at::Tensor& zero(at::Tensor& self) {
  Engine& gpu = engine("aten::zero_");
  tell_clock_of_write(gpu, "aten::zero_", self);
  fill_values(gpu, self, 0);
  return self;
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef sizes,
                         std::optional<at::MemoryFormat> format) {
  const at::MemoryFormat wanted = format.value_or(at::MemoryFormat::Contiguous);
  const Dims strides = wanted == at::MemoryFormat::Preserve
                           ? dense_strides(sizes, self.suggest_memory_format())
                           : dense_strides(sizes, wanted);
  set_sizes(engine("aten::resize_"), self, sizes, strides);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, std::int64_t offset,
                        at::IntArrayRef sizes, at::IntArrayRef strides) {
  if (self.is_cpu()) {
    at::native::set_storage_cpu_(self, std::move(source), offset, sizes, strides);
    match_keys(self);
    return self;
  }
  TORCH_CHECK(record_of(*source.unsafeGetStorageImpl()) != nullptr,
              "Attempted to set the storage of a tensor on cuda to a storage on another device");
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset);
  const Dims dense = dense_strides(sizes, at::MemoryFormat::Contiguous);
  set_sizes(engine("aten::set_"), self, sizes,
            strides.data() == nullptr ? at::IntArrayRef(dense) : strides);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<std::int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(source), 0, {elements}, {1});
}

at::Tensor& set_empty(at::Tensor& self) {
  Engine& gpu = engine("aten::set_");
  const int device = self.is_cpu() ? kHost : self.device().index();
  return set_whole_storage(self, make_storage(gpu, device, 0, nullptr));
}

bool is_set_to(const at::Tensor& self, const at::Tensor& source) {
  return self.storage().unsafeGetStorageImpl() == source.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == source.storage_offset() && self.sizes() == source.sizes() &&
         self.strides() == source.strides();
}

void record_stream(at::Tensor& self, at::Stream stream) {
  const StorageRecord* record = record_of(self);
  if (record == nullptr || record->address == 0 || record->device == kHost) return;
  engine("aten::record_stream")
      .memory()
      .record_stream(record->device, record->address, allocator_stream(stream.id()));
}

// The weights of an RNN move into one buffer, where cuDNN wants them.
at::Tensor flatten_weights(at::TensorList weights, std::int64_t, std::int64_t, std::int64_t,
                           std::int64_t, std::int64_t, std::int64_t, bool, bool) {
  std::int64_t elements = 0;
  for (const at::Tensor& weight : weights) elements += weight.numel();
  at::Tensor buffer = at::empty({elements}, weights[0].options());
  std::int64_t offset = 0;
  for (const at::Tensor& weight : weights) {
    const Dims strides = dense_strides(weight.sizes(), at::MemoryFormat::Contiguous);
    const at::Tensor moved = weight;
    moved.set_(buffer.storage(), offset, weight.sizes(), strides);
    offset += weight.numel();
  }
  return buffer;
}

// Gradients of a virtual GPU count as finite, or no optimizer would ever step.
void check_finite_and_unscale(at::TensorList gradients, at::Tensor&, const at::Tensor&) {
  for (const at::Tensor& gradient : gradients) forget_values(gradient);
}

// Formulas of derivatives check what they are given (eigenvectors are known up to a phase): a healthy
// run passes. A program's own question is answered as its comparisons are.
bool all_close(const at::Tensor& self, const at::Tensor& other, double rtol, double atol,
               bool equal_nan) {
  const bool in_backward = torch::autograd::get_current_graph_task_id() >= 0;
  if (in_backward && !(known_values(self) && known_values(other))) return true;
  return at::isclose(self, other, rtol, atol, equal_nan).all().item<bool>();
}

bool compatible(const at::Tensor&, const at::Tensor&) { return true; }

}  // namespace

const std::vector<std::string>& hand_written() {
  static auto* const kNames =
      new std::vector<std::string>{"aten::fill_.Scalar",
                                   "aten::fill_.Tensor",
                                   "aten::zero_",
                                   "aten::copy_",
                                   "aten::resize_",
                                   "aten::_local_scalar_dense",
                                   "aten::_fused_sdp_choice",
                                   "aten::set_.source_Storage",
                                   "aten::set_.source_Storage_storage_offset",
                                   "aten::set_.source_Tensor",
                                   "aten::set_",
                                   "aten::is_set_to",
                                   "aten::record_stream",
                                   "aten::_cudnn_rnn_flatten_weight",
                                   "aten::_amp_foreach_non_finite_check_and_unscale_",
                                   "aten::view",
                                   "aten::as_strided",
                                   "aten::_reshape_alias",
                                   "aten::unfold",
                                   "aten::empty.memory_format",
                                   "aten::empty_strided",
                                   "aten::_use_cudnn_ctc_loss",
                                   "aten::_use_cudnn_ctc_loss.Tensor",
                                   "aten::_use_miopen_ctc_loss",
                                   "aten::_use_miopen_ctc_loss.Tensor",
                                   "aten::_ctc_loss.Tensor",
                                   "aten::_ctc_loss_backward.Tensor",
                                   "aten::tril_indices",
                                   "aten::triu_indices",
                                   "aten::linalg_lstsq.out",
                                   "aten::allclose"};
  return *kNames;
}

void add_hand_written(torch::Library& aten) {
  aten.impl("fill_.Scalar", TORCH_FN(fill_scalar));
  aten.impl("fill_.Tensor", TORCH_FN(fill_tensor));
  aten.impl("zero_", TORCH_FN(zero));
  aten.impl("copy_", TORCH_FN(copy_));
  aten.impl("resize_", TORCH_FN(resize));
  aten.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  aten.impl("_fused_sdp_choice", TORCH_FN(choose_attention));
  aten.impl("set_.source_Storage", TORCH_FN(set_whole_storage));
  aten.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  aten.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  aten.impl("set_", TORCH_FN(set_empty));
  aten.impl("is_set_to", TORCH_FN(is_set_to));
  aten.impl("_amp_foreach_non_finite_check_and_unscale_", TORCH_FN(check_finite_and_unscale));
  aten.impl("_cudnn_rnn_flatten_weight", TORCH_FN(flatten_weights));
  aten.impl("record_stream", TORCH_FN(record_stream));
  aten.impl("_pin_memory", TORCH_FN(pinned_copy));
  aten.impl("_has_compatible_shallow_copy_type", TORCH_FN(compatible));
  // Views are of the metadata alone: torch's own code makes them.
  aten.impl("view", TORCH_FN(at::native::view));
  aten.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  aten.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  aten.impl("unfold", TORCH_FN(at::native::unfold));
  add_ctc_loss(aten);
  aten.impl("allclose", TORCH_FN(all_close));
  aten.impl("linalg_lstsq.out", TORCH_FN(least_squares));
}

}  // namespace peakline::vgpu
