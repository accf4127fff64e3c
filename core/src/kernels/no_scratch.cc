// What is listed here allocates its results and nothing else, as far as torch's CUDA kernels (2.11)
// are known; three were measured. An op that is not listed may well need nothing: nobody has looked.
#include "kernels/no_scratch.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace peakline::kernels {
namespace {

template <std::size_t kCount>
bool contains(const std::array<std::string_view, kCount>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Kernels that read tensors of any layout: loops over elements that torch does not declare as such,
// scatters and gathers, random numbers, factories.
constexpr auto kAnyLayout =
    std::to_array<std::string_view>({"__irshift__",
                                     "_amp_update_scale_",
                                     "_assert_async",
                                     "_efficientzerotensor",
                                     "_fused_adagrad_",
                                     "_fused_adam_",
                                     "_fused_adamw_",
                                     "_fused_dropout",
                                     "_fused_sgd_",
                                     "_masked_scale",
                                     "_prelu_kernel",
                                     "_prelu_kernel_backward",
                                     "_standard_gamma",
                                     "addr",
                                     "arange",
                                     "bernoulli",
                                     "bernoulli_",
                                     "binary_cross_entropy_backward",
                                     "binomial",
                                     "cat",
                                     "cauchy_",
                                     "complex",
                                     "exponential_",
                                     "eye",
                                     "fake_quantize_per_channel_affine_cachemask",
                                     "fake_quantize_per_tensor_affine_cachemask",
                                     "flip",
                                     "floor_divide",
                                     "floor_divide_",
                                     "gather",
                                     "geometric_",
                                     "glu_backward",
                                     "hardswish",
                                     "hardswish_",
                                     "hardswish_backward",
                                     "hardtanh",
                                     "hardtanh_backward",
                                     "huber_loss_backward",
                                     "index_add",
                                     "index_add_",
                                     "index_copy",
                                     "index_copy_",
                                     "index_fill_",
                                     "index_select",
                                     "linalg_cross",
                                     "linspace",
                                     "log_normal_",
                                     "log_sigmoid_backward",
                                     "log_sigmoid_forward",
                                     "logspace",
                                     "masked_fill_",
                                     "mish_backward",
                                     "mse_loss_backward",
                                     "normal_",
                                     "poisson",
                                     "polar",
                                     "random_",
                                     "range",
                                     "rrelu_with_noise",
                                     "rrelu_with_noise_",
                                     "rsub",
                                     "scatter",
                                     "scatter_",
                                     "scatter_add",
                                     "scatter_add_",
                                     "scatter_reduce",
                                     "scatter_reduce_",
                                     "smooth_l1_loss_backward",
                                     "take",
                                     "tril",
                                     "tril_",
                                     "triu",
                                     "triu_",
                                     "unfold_backward",
                                     "uniform_",
                                     "where"});

// Kernels that copy what is neither contiguous nor channels-last, and need nothing else.
constexpr auto kDenseInputs =
    std::to_array<std::string_view>({"_adaptive_avg_pool2d",
                                     "_adaptive_avg_pool2d_backward",
                                     "_adaptive_avg_pool3d",
                                     "_adaptive_avg_pool3d_backward",
                                     "_cdist_forward",
                                     "_thnn_fused_gru_cell",
                                     "_thnn_fused_gru_cell_backward",
                                     "_thnn_fused_lstm_cell",
                                     "_thnn_fused_lstm_cell_backward_impl",
                                     "_upsample_bicubic2d_aa",
                                     "_upsample_bicubic2d_aa_backward",
                                     "_upsample_bilinear2d_aa",
                                     "_upsample_bilinear2d_aa_backward",
                                     "_upsample_nearest_exact1d",
                                     "_upsample_nearest_exact1d_backward",
                                     "_upsample_nearest_exact2d",
                                     "_upsample_nearest_exact2d_backward",
                                     "_upsample_nearest_exact3d",
                                     "_upsample_nearest_exact3d_backward",
                                     "_weight_norm_interface",
                                     "_weight_norm_interface_backward",
                                     "adaptive_avg_pool2d",
                                     "adaptive_avg_pool3d",
                                     "adaptive_avg_pool3d_backward",
                                     "adaptive_max_pool2d",
                                     "adaptive_max_pool2d_backward",
                                     "adaptive_max_pool3d",
                                     "adaptive_max_pool3d_backward",
                                     "avg_pool2d",
                                     "avg_pool2d_backward",
                                     "avg_pool3d",
                                     "avg_pool3d_backward",
                                     "bucketize",
                                     "channel_shuffle",
                                     "grid_sampler_2d",
                                     "grid_sampler_2d_backward",
                                     "grid_sampler_3d",
                                     "grid_sampler_3d_backward",
                                     "max_pool2d_with_indices",
                                     "max_pool2d_with_indices_backward",
                                     "max_pool3d_with_indices",
                                     "max_pool3d_with_indices_backward",
                                     "nll_loss2d_backward",
                                     "nll_loss2d_forward",
                                     "nll_loss_backward",
                                     "nll_loss_forward",
                                     "reflection_pad1d",
                                     "reflection_pad1d_backward",
                                     "reflection_pad2d",
                                     "reflection_pad2d_backward",
                                     "reflection_pad3d",
                                     "reflection_pad3d_backward",
                                     "replication_pad1d",
                                     "replication_pad1d_backward",
                                     "replication_pad2d",
                                     "replication_pad2d_backward",
                                     "replication_pad3d",
                                     "replication_pad3d_backward",
                                     "searchsorted",
                                     "upsample_bicubic2d",
                                     "upsample_bicubic2d_backward",
                                     "upsample_bilinear2d",
                                     "upsample_bilinear2d_backward",
                                     "upsample_linear1d",
                                     "upsample_linear1d_backward",
                                     "upsample_nearest1d",
                                     "upsample_nearest1d_backward",
                                     "upsample_nearest2d",
                                     "upsample_nearest2d_backward",
                                     "upsample_nearest3d",
                                     "upsample_nearest3d_backward"});

// Of closed libraries or not looked at, but measured on an H200 with torch 2.11
// (tests/data/kernels/): to the byte where all inputs are contiguous.
constexpr auto kMeasuredContiguous = std::to_array<std::string_view>({"_embedding_bag"});

bool dense(const TensorMeta& tensor) {
  return !tensor.defined || tensor.contiguous() || tensor.channels_last();
}

bool contiguous(const TensorMeta& tensor) { return !tensor.defined || tensor.contiguous(); }

template <class Test>
bool all_tensors(const OpCall& call, Test test) {
  return std::all_of(call.arguments.begin(), call.arguments.end(), [&](const Argument& argument) {
    const auto* tensor = std::get_if<TensorMeta>(&argument);
    return tensor == nullptr || test(*tensor);
  });
}

// One launch for many tensors, whose addresses are arguments of the kernel. Those that reduce
// (_foreach_norm, _foreach_max) have rules.
bool loops_over_lists(std::string_view name) {
  return name.starts_with("_foreach_") && name != "_foreach_powsum";
}

// Nothing to interpolate: torch copies element by element, from any layout (UpSampleBilinear2d.cu).
bool is_plain_copy(const OpCall& call) {
  if (!call.name.starts_with("aten::upsample_bilinear2d") || call.outputs.empty()) return false;
  const auto* from = call.arguments.empty() ? nullptr : std::get_if<TensorMeta>(&call.arguments[0]);
  return from != nullptr && from->sizes == call.outputs[0].meta.sizes;
}

}  // namespace

bool needs_no_scratch(const OpCall& call) {
  constexpr std::string_view kSpace = "aten::";
  if (call.elementwise) return true;
  if (!call.name.starts_with(kSpace)) return false;
  const std::string_view name = call.name.substr(kSpace.size());
  if (loops_over_lists(name) || contains(kAnyLayout, name)) return true;
  if (contains(kMeasuredContiguous, name)) return all_tensors(call, contiguous);
  return contains(kDenseInputs, name) && all_tensors(call, dense);
}

bool copies_inputs(const OpCall& call, ProgramBuilder& program) {
  constexpr std::string_view kSpace = "aten::";
  if (!call.name.starts_with(kSpace)) return false;
  if (!contains(kDenseInputs, call.name.substr(kSpace.size()))) return false;
  program.outputs();
  if (is_plain_copy(call)) return true;
  std::vector<int> copies;
  for (const Argument& argument : call.arguments) {
    const auto* tensor = std::get_if<TensorMeta>(&argument);
    if (tensor == nullptr || dense(*tensor) || !tensor->on_gpu) continue;
    copies.push_back(program.alloc(tensor->bytes().raw(), Certainty::kModelled));
  }
  for (const int copy : copies) program.free(copy);
  return true;
}

}  // namespace peakline::kernels
