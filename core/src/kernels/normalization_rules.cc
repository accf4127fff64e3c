// Normalizations. Sources: aten/src/ATen/native/cuda/layer_norm_kernel.cu, group_norm_kernel.cu,
// aten/src/ATen/native/group_norm.cpp, Normalization.cu, SoftMax.cu, cudnn/BatchNorm.cpp.
#include <algorithm>

#include "kernels/memory_format.h"
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
  const Scratch dense_input(op.program, copy_of(input));
  op.program.outputs();
  const Scratch dense_gradient(op.program, copy_of(op.args.tensor(0)));
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

// SoftMax.cu reads contiguous tensors; pictures in channels last are copied, too.
void softmax(RuleContext& op) {
  op.program.outputs();
  op.program.flash(copy_of(op.args.tensor(0)));
}

void log_softmax_backward(RuleContext& op) {
  op.program.outputs();
  const Scratch dense_gradient(op.program, copy_of(op.args.tensor(0)));
  const Scratch dense_output(op.program, copy_of(op.args.tensor(1)));
}

// The product of gradient and output is made beside the result; log_softmax has no need.
void softmax_backward(RuleContext& op) {
  op.program.outputs();
  const TensorMeta& gradient = op.args.tensor(0);
  const TensorMeta& output = op.args.tensor(1);
  const std::int64_t bytes =
      gradient.numel() * std::max(size_of(gradient.dtype), size_of(output.dtype));
  const Scratch product(op.program, bytes);
  // It lies as its factors do.
  const Scratch dense_product(op.program, copy_of(gradient) > 0 && copy_of(output) > 0 ? bytes : 0);
  const Scratch dense_output(op.program, copy_of(output));
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

// cuDNN's kernels for channels that lie side by side: a block of threads takes `columns` channels of
// `rows` pixels, and leaves two sums a channel to the others; forward it counts its pixels as well.
struct NormTile {
  std::int64_t columns;
  std::int64_t rows;
};

// Channels are read four at a time where that goes up; of very few, four pixels are one row.
NormTile norm_tile(std::int64_t channels, std::int64_t rows) {
  if (channels < 4) return {4, 4 * rows};
  return {channels % 4 == 0 ? 64 : 16, rows};
}

// What all blocks leave, a lock for each row of blocks, and the kernel's own state. As cuDNN 9.19 asked
// for on an H200, to the byte (tests/data/kernels/batch_norms_h200.csv).
std::int64_t channels_last_norm(const TensorMeta& input, bool forward) {
  const std::int64_t channels = input.sizes[1];
  if (channels == 0) return 0;
  const std::int64_t pixels = input.numel() / channels;
  const std::int64_t rows = !forward ? 96 : is_reduced_float(input.dtype) ? 160 : 64;
  const NormTile tile = norm_tile(channels, rows);
  const std::int64_t blocks = (channels + tile.columns - 1) / tile.columns;
  const std::int64_t parts = blocks * ((pixels + tile.rows - 1) / tile.rows);
  const std::int64_t part = tile.columns * 2 * 4 + (forward ? 4 : 0);
  return parts * part + blocks * 4 + (forward ? 1072 : 1056);
}

void flash_channels_last_norm(RuleContext& op, bool forward) {
  const TensorMeta& input = op.args.tensor(0);
  if (!suggests_channels_last(input)) return;
  op.program.flash(channels_last_norm(input, forward), Certainty::kModelled);
}

// cudnn_batch_norm(input, weight, bias, running_mean, running_var, training, …): without training it
// reads what it has. Contiguous pictures take nothing beside the results, as measured.
void cudnn_batch_norm(RuleContext& op) {
  op.program.outputs();
  if (op.args.flag(5)) flash_channels_last_norm(op, /*forward=*/true);
}

// cudnn_batch_norm_backward(input, grad_output, weight, …)
void cudnn_batch_norm_backward(RuleContext& op) {
  op.program.outputs();
  flash_channels_last_norm(op, /*forward=*/false);
}

constexpr NamedRule kRules[] = {
    {"aten::cudnn_batch_norm", cudnn_batch_norm},
    {"aten::cudnn_batch_norm_backward", cudnn_batch_norm_backward},
    {"aten::native_batch_norm", batch_norm},
    {"aten::native_batch_norm_backward", batch_norm_backward},
    {"aten::_softmax", softmax},
    {"aten::_log_softmax", softmax},
    {"aten::_softmax_backward_data", softmax_backward},
    {"aten::_log_softmax_backward_data", log_softmax_backward},
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
