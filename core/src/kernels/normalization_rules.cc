// Normalizations. Sources: aten/src/ATen/native/cuda/layer_norm_kernel.cu, group_norm_kernel.cu,
// aten/src/ATen/native/group_norm.cpp, Normalization.cu, SoftMax.cu, cudnn/BatchNorm.cpp.
#include <algorithm>

#include "kernels/reduce_config.h"
#include "kernels/rule_tables.h"

namespace peakline::kernels {
namespace {

std::int64_t accumulated(DType dtype) { return size_of(accumulate_type(dtype)); }

std::int64_t copy_of(const TensorMeta& tensor) {
  return tensor.defined && !tensor.contiguous() ? tensor.bytes().raw() : 0;
}

// Many short rows: 32 at a time leave a row of parts each, which a plain sum adds up then.
bool in_parts(std::int64_t rows, std::int64_t width, const DeviceProfile& gpu) {
  return rows > std::int64_t{64} * 1024 && width / gpu.warp_size < gpu.sm_count / 2;
}

void sum_parts(RuleContext& op, std::int64_t parts, std::int64_t width, DType dtype) {
  Reduction r;
  r.input.dtype = dtype;
  r.input.sizes = {parts, width};
  r.input.strides = {width, 1};
  r.dims = {0};
  r.accumulator_size = accumulated(dtype);
  r.output_size = size_of(dtype);
  r.accumulates_in_output = !is_reduced_float(dtype);
  const Scratch sum(op.program, width * size_of(dtype));
  reduce(op.program, r, op.gpu);
}

// The gradients of `weights` weight tensors of the width that is normalized over.
void weight_gradients(RuleContext& op, const TensorMeta& input, std::int64_t width, int weights) {
  const std::int64_t rows = width > 0 ? input.numel() / width : 0;
  if (weights == 0 || !in_parts(rows, width, op.gpu)) return;
  const std::int64_t parts = (rows + 31) / 32;
  const std::int64_t bytes = parts * width * size_of(input.dtype);
  const Scratch first(op.program, bytes);
  const Scratch second(op.program, weights > 1 ? bytes : 0);
  for (int i = 0; i < weights; ++i) sum_parts(op, parts, width, input.dtype);
}

std::int64_t product(const std::vector<std::int64_t>& sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return count;
}

void row_norm(RuleContext& op) {
  const Scratch dense(op.program, copy_of(op.args.tensor(0)));
  op.program.outputs();
}

void layer_norm_backward(RuleContext& op) {
  const TensorMeta& input = op.args.tensor(1);
  const Scratch dense_gradient(op.program, copy_of(op.args.tensor(0)));
  const Scratch dense_input(op.program, copy_of(input));
  op.program.outputs();
  const int weights = (op.args.mask(7, 1) ? 1 : 0) + (op.args.mask(7, 2) ? 1 : 0);
  weight_gradients(op, input, product(op.args.integers(2)),
                   op.args.tensor(5).defined ? weights : 0);
}

void rms_norm_backward(RuleContext& op) {
  const TensorMeta& input = op.args.tensor(1);
  const Scratch dense_gradient(op.program, copy_of(op.args.tensor(0)));
  const Scratch dense_input(op.program, copy_of(input));
  op.program.outputs();
  weight_gradients(op, input, product(op.args.integers(2)),
                   op.args.tensor(4).defined && op.args.mask(5, 1) ? 1 : 0);
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

// The product of gradient and output is made beside the result (SoftMax.cu); log_softmax has no need.
void softmax_backward(RuleContext& op) {
  op.program.outputs();
  const TensorMeta& gradient = op.args.tensor(0);
  const std::int64_t element = std::max(size_of(gradient.dtype), size_of(op.args.tensor(1).dtype));
  op.program.flash(gradient.numel() * element);
}

std::int64_t last_power_of_two(std::int64_t value) {
  std::int64_t power = 1;
  while (power * 2 <= value) power *= 2;
  return power;
}

bool channels_innermost(const TensorMeta& t) {
  return t.sizes.size() == 2 || (t.strides.size() > 2 && t.strides[1] == 1 && !t.contiguous());
}

// Statistics of channels that lie side by side: blocks over the rows leave parts of `values` numbers
// a channel, and count themselves (flexible_launch_configs in Normalization.cuh).
void staged_statistics(RuleContext& op, const TensorMeta& input, std::int64_t values) {
  constexpr std::int64_t kTile = 32;
  constexpr std::int64_t kThreads = 512;
  constexpr std::int64_t kRowsPerThread = 16;
  const std::int64_t channels = input.sizes[1];
  if (channels == 0) return;
  const std::int64_t rows = input.numel() / channels;
  std::int64_t wide = std::min(last_power_of_two(channels), kTile);
  const std::int64_t high =
      std::min(last_power_of_two((rows + kRowsPerThread - 1) / kRowsPerThread), kThreads / wide);
  if (wide * high != kThreads) wide = std::min(last_power_of_two(channels), kThreads / high);
  const std::int64_t rows_per_block = high * kRowsPerThread;
  const std::int64_t blocks =
      std::min<std::int64_t>((rows + rows_per_block - 1) / rows_per_block, 128);
  if (blocks < 8) return;
  const Scratch staging(op.program, values * channels * blocks * accumulated(input.dtype));
  op.program.flash((channels + wide - 1) / wide * 4);
}

// native_batch_norm(input, weight, bias, running_mean, running_var, training, …)
void batch_norm(RuleContext& op) {
  const TensorMeta& input = op.args.tensor(0);
  op.program.outputs();
  if (op.args.flag(5) && channels_innermost(input)) staged_statistics(op, input, 4);
}

// native_batch_norm_backward(grad_out, input, weight, …, train, eps, output_mask)
void batch_norm_backward(RuleContext& op) {
  const TensorMeta& input = op.args.tensor(1);
  if (!op.args.flag(7) || !channels_innermost(input) || op.call.outputs.size() < 3) {
    op.program.outputs();
    return;
  }
  const std::int64_t sums = input.sizes[1] * accumulated(input.dtype);
  const Scratch gradients(op.program, sums);
  const Scratch products(op.program, sums);
  op.program.output(1);
  op.program.output(2);
  staged_statistics(op, input, 2);
  op.program.output(0);
}

// cuDNN's kernel for channels that lie side by side keeps every SM busy to the end: those that have the
// same 256 channels leave each other `values` numbers a channel, beside the two results. Within 1% of
// what was measured for 64 and for 2,048 channels; the rest are flags.
void exchange_between_sms(RuleContext& op, const TensorMeta& input, std::int64_t values) {
  constexpr std::int64_t kChannelsPerSm = 256;
  if (input.sizes.size() < 3 || !channels_innermost(input)) return;
  const std::int64_t channels = input.sizes[1];
  const std::int64_t columns = (channels + kChannelsPerSm - 1) / kChannelsPerSm;
  const std::int64_t parts =
      columns == 0 ? 0 : std::max<std::int64_t>(op.gpu.sm_count / columns, 1);
  op.program.flash((values * parts + 2) * channels * accumulated(input.dtype),
                   Certainty::kModelled);
}

// cudnn_batch_norm(input, weight, bias, running_mean, running_var, training, …): without training it
// reads what it has. Contiguous pictures take nothing beside the results, as measured.
void cudnn_batch_norm(RuleContext& op) {
  op.program.outputs();
  if (op.args.flag(5)) exchange_between_sms(op, op.args.tensor(0), 3);
}

// cudnn_batch_norm_backward(input, grad_output, weight, …)
void cudnn_batch_norm_backward(RuleContext& op) {
  op.program.outputs();
  exchange_between_sms(op, op.args.tensor(0), 2);
}

constexpr NamedRule kRules[] = {
    {"aten::cudnn_batch_norm", cudnn_batch_norm},
    {"aten::cudnn_batch_norm_backward", cudnn_batch_norm_backward},
    {"aten::native_batch_norm", batch_norm},
    {"aten::native_batch_norm_backward", batch_norm_backward},
    {"aten::_softmax_backward_data", softmax_backward},
    {"aten::native_layer_norm", row_norm},
    {"aten::_fused_rms_norm", row_norm},
    {"aten::native_layer_norm_backward", layer_norm_backward},
    {"aten::_fused_rms_norm_backward", rms_norm_backward},
    {"aten::native_group_norm", group_norm},
    {"aten::native_group_norm_backward", group_norm_backward},
};

}  // namespace

std::span<const NamedRule> normalization_rules() { return kRules; }

}  // namespace peakline::kernels
