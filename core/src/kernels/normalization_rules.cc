// Normalizations. Sources: aten/src/ATen/native/cuda/layer_norm_kernel.cu, group_norm_kernel.cu,
// aten/src/ATen/native/group_norm.cpp, Normalization.cu.
#include "kernels/rule_tables.h"

namespace peakline::kernels {
namespace {

std::int64_t accumulated(DType dtype) { return size_of(accumulate_type(dtype)); }

std::int64_t copy_of(const TensorMeta& tensor) {
  return tensor.defined && !tensor.contiguous() ? tensor.bytes().raw() : 0;
}

// Many short rows: the gradients of weight and bias are made in parts, one row of parts per block,
// and summed after.
struct LayerNormParts {
  std::int64_t rows = 0;
};

void layer_norm_backward(RuleContext& op) {
  const TensorMeta& gradient = op.args.tensor(0);
  const TensorMeta& input = op.args.tensor(1);
  const Scratch dense_gradient(op.program, copy_of(gradient));
  const Scratch dense_input(op.program, copy_of(input));
  op.program.outputs();
}

// Scale and shift per channel, in float.
void group_norm(RuleContext& op) {
  op.program.outputs();
  const std::int64_t n = op.args.integer(3);
  const std::int64_t channels = op.args.integer(4);
  if (op.args.integer(5) == 1 || n * channels == 0) return;
  const std::int64_t bytes = n * channels * accumulated(op.args.tensor(0).dtype);
  const Scratch scale(op.program, bytes);
  const Scratch shift(op.program, bytes);
}

void group_norm_backward(RuleContext& op) {
  const Scratch dense_gradient(op.program, copy_of(op.args.tensor(0)));
  op.program.outputs();
  const std::int64_t n = op.args.integer(5);
  const std::int64_t channels = op.args.integer(6);
  const std::int64_t groups = op.args.integer(8);
  const std::int64_t real = accumulated(op.args.tensor(1).dtype);
  const Scratch gradient_sums(op.program, n * channels * real);
  const Scratch product_sums(op.program, n * channels * real);
  if (!op.args.mask(9, 0)) return;
  const int factor2 = op.program.alloc(n * groups * real);
  const int factor3 = op.program.alloc(n * groups * real);
  const int factor1 = op.program.alloc(op.args.tensor(4).defined ? n * channels * real : 0);
  op.program.free(factor2);
  op.program.free(factor3);
  op.program.free(factor1);
}

constexpr NamedRule kRules[] = {
    {"aten::native_layer_norm_backward", layer_norm_backward},
    {"aten::native_group_norm", group_norm},
    {"aten::native_group_norm_backward", group_norm_backward},
};

}  // namespace

std::span<const NamedRule> normalization_rules() { return kRules; }

}  // namespace peakline::kernels
