#include "vgpu/nested/nested_kernels.h"

#include <ATen/ATen.h>
#include <ATen/NestedTensorImpl.h>

#include "vgpu/nested/fast_attention.h"
#include "vgpu/shared_code.h"
#include "vgpu/values.h"
#include "vgpu/values/host_run.h"

namespace peakline::vgpu {
namespace {

#define PEAKLINE_SHARED(name) {name, true},
#define PEAKLINE_OWN(name) {name, false},
constexpr ListedOp kNested[] = {
#include "nested_ops.inc"
};
#undef PEAKLINE_SHARED
#undef PEAKLINE_OWN

// How many of a row's places are not padding. Where nobody knows, none is.
at::Tensor lengths(const at::Tensor& mask) {
  if (const std::optional<at::Tensor> known = known_values(mask)) {
    const HostRun host;
    return known->to(at::kLong).sum(1);
  }
  engine_or_throw("aten::_nested_tensor_from_mask")
      .ask("aten::_nested_tensor_from_mask", Decides::kSize);
  const HostRun host;
  return at::full({mask.size(0)}, mask.size(1), at::kLong);
}

// A padding mask has its padding at the end, as far as anybody knows.
bool is_left_aligned(const at::Tensor&, const at::Tensor& mask) {
  const std::optional<at::Tensor> known = known_values(mask);
  if (!known) return true;
  const HostRun host;
  const at::Tensor numbers = known->to(at::kLong);
  return at::equal(numbers, std::get<0>(numbers.sort(1, /*descending=*/true)));
}

at::Tensor nested_from_padded(const at::Tensor& padded, const at::Tensor& sizes, bool transform) {
  std::int64_t elements = 0;
  {
    const HostRun host;
    elements = sizes.prod(1).sum().item<std::int64_t>();
  }
  TORCH_CHECK(!transform || padded.dim() == 4, "a fused transform wants four dimensions");
  const at::Tensor buffer = at::empty({elements}, padded.options());
  at::empty({sizes.numel() + 2 * sizes.size(0) + 1}, padded.options().dtype(at::kInt));  // sizes
  return at::detail::make_tensor<at::native::NestedTensorImpl>(buffer, sizes);
}

at::Tensor from_mask(const at::Tensor& tensor, const at::Tensor& mask, bool check) {
  TORCH_CHECK(mask.scalar_type() == at::kBool && mask.dim() == 2 && tensor.dim() == 3,
              "expected a mask of two dimensions and a tensor of three");
  TORCH_CHECK(!check || is_left_aligned(tensor, mask),
              "Expected mask to be left aligned. The mask has padding before other elements");
  const at::Tensor rows = lengths(mask);
  at::Tensor sizes;
  {
    const HostRun host;
    sizes = at::stack({rows, at::full_like(rows, tensor.size(2))}, 1);
  }
  return nested_from_padded(tensor, sizes, false);
}

at::Tensor to_padded(const at::Tensor& nested, double, at::OptionalIntArrayRef wanted) {
  const auto* impl = at::native::get_nested_tensor_impl(nested);
  const at::Tensor& sizes = impl->get_nested_sizes();
  std::vector<std::int64_t> padded{sizes.size(0)};
  if (wanted.has_value()) {
    padded = wanted->vec();
  } else {
    const HostRun host;
    const at::Tensor longest = std::get<0>(sizes.max(0));
    for (std::int64_t d = 0; d < longest.numel(); ++d) {
      padded.push_back(longest[d].item<std::int64_t>());
    }
  }
  const at::TensorOptions options = impl->get_unsafe_storage_as_tensor().options();
  at::empty({sizes.numel() + sizes.size(0) + 1}, options.dtype(at::kInt));  // sizes, for the kernel
  return at::empty(padded, options);
}

}  // namespace

void normalize_rows(const at::Tensor&, const at::Tensor&, const at::Tensor&, std::int64_t,
                    std::int64_t, double, at::Tensor* output, at::Tensor* mean, at::Tensor* rstd) {
  for (const at::Tensor* made : {output, mean, rstd}) {
    if (made != nullptr && made->defined()) forget_values(*made);
  }
}

void add_nested_kernels(torch::Library& aten) {
  aten.impl("to_padded_tensor", TORCH_FN(to_padded));
  aten.impl("_native_multi_head_attention", TORCH_FN(multi_head_attention));
  add_shared<c10::DispatchKey::NestedTensorCPU>(
      aten, kNested, {"to_padded_tensor", "_native_multi_head_attention"});
}

std::set<std::string> add_ops_that_give_nested(torch::Library& aten) {
  aten.impl("_nested_tensor_from_mask", TORCH_FN(from_mask));
  aten.impl("_nested_tensor_from_mask_left_aligned", TORCH_FN(is_left_aligned));
  aten.impl("_nested_from_padded", TORCH_FN(nested_from_padded));
  aten.impl("_native_multi_head_attention", TORCH_FN(multi_head_attention));
  for (const char* name : {"_transformer_encoder_layer_fwd", "_nested_view_from_buffer"}) {
    aten.impl(name,
              torch::CppFunction::makeFromBoxedFunction<&run_shared<c10::DispatchKey::CPU>>());
  }
  return {"_nested_tensor_from_mask",
          "_nested_tensor_from_mask_left_aligned",
          "_nested_from_padded",
          "_native_multi_head_attention",
          "_transformer_encoder_layer_fwd",
          "_nested_view_from_buffer"};
}

}  // namespace peakline::vgpu
