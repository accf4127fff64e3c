// Fused attention. Sources: aten/src/ATen/native/transformers/cuda/attention.cu,
// attention_backward.cu, flash_attn/flash_api.cpp, mem_eff_attention/kernel_backward.h,
// aten/src/ATen/native/cudnn/MHA.cpp.
#include <algorithm>

#include "kernels/rule_tables.h"

namespace peakline::kernels {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

struct Heads {
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t size = 0;
  std::int64_t value_size = 0;
  std::int64_t element = 2;
};

// Tensors are [batch, heads, length, size].
Heads heads_of(const TensorMeta& query, const TensorMeta& key, const TensorMeta& value) {
  Heads h;
  if (query.sizes.size() != 4 || key.sizes.size() != 4 || value.sizes.size() != 4) return h;
  h.batch = query.sizes[0];
  h.heads = query.sizes[1];
  h.kv_heads = key.sizes[1];
  h.queries = query.sizes[2];
  h.keys = key.sizes[2];
  h.size = query.sizes[3];
  h.value_size = value.sizes[3];
  h.element = size_of(query.dtype);
  return h;
}

// cuDNN's forward needs next to nothing.
constexpr std::int64_t kCudnnForward = 256;

void cudnn_forward(RuleContext& op) {
  // philox seed and offset come first, then the result and the logarithms of the sums.
  if (op.args.outs() > 7) {
    op.program.output(6);
    op.program.output(7);
  }
  op.program.output(0);
  op.program.output(1);
  op.program.outputs();
  op.program.flash(kCudnnForward, Certainty::kModelled);
}

// The query's gradient is summed in float, beside one number per query; with fewer key heads than
// query heads, the keys' and values' gradients are made per query head first.
std::int64_t cudnn_backward_bytes(const Heads& h) {
  std::int64_t bytes = h.batch * h.heads * h.queries * (h.size + 1) * 4 + 256;
  if (h.kv_heads != h.heads) {
    bytes += h.batch * h.heads * h.keys * (h.size + h.value_size) * h.element;
  }
  return bytes;
}

void cudnn_backward(RuleContext& op) {
  const Heads h = heads_of(op.args.tensor(1), op.args.tensor(2), op.args.tensor(3));
  op.program.outputs();
  op.program.flash(cudnn_backward_bytes(h), Certainty::kModelled);
}

// Head sizes that are no multiple of 8 are padded before flash attention by its caller, which is an
// op of its own; here everything is as the kernel sees it.
void flash_backward(RuleContext& op) {
  const Heads h = heads_of(op.args.tensor(1), op.args.tensor(2), op.args.tensor(3));
  const TensorMeta& gradient = op.args.tensor(0);
  const bool last_dense = gradient.strides.empty() || gradient.strides.back() == 1;
  const Scratch dense(op.program, last_dense ? 0 : gradient.bytes().raw());
  op.program.outputs();
  const std::int64_t queries = round_up(h.queries, 128);
  const std::int64_t size = round_up(h.size, h.size <= 128 ? 32 : 64);
  const Scratch sums(op.program, h.batch * h.heads * queries * 4);
  const std::int64_t splits =
      op.state.deterministic_algorithms
          ? std::max<std::int64_t>(1, (op.gpu.sm_count + h.batch * h.heads - 1) /
                                          std::max<std::int64_t>(1, h.batch * h.heads))
          : 1;
  const Scratch query_gradient(op.program, splits * h.batch * h.heads * queries * size * 4);
  const bool grouped = h.heads != h.kv_heads;
  const std::int64_t expanded = grouped ? h.batch * h.heads * h.keys * h.size * h.element : 0;
  const Scratch key_gradient(op.program, expanded);
  const Scratch value_gradient(op.program, expanded);
}

// A mask must lie in rows of whole 16 bytes, or it is copied into such rows.
std::int64_t padded_mask(const TensorMeta& mask, std::int64_t batch, std::int64_t heads) {
  if (!mask.defined || mask.sizes.size() < 2) return 0;
  const std::int64_t last = mask.sizes.back();
  const std::int64_t unit = 16;
  if (last % unit == 0) return 0;
  const std::int64_t rows = mask.numel() / std::max<std::int64_t>(1, last);
  (void)batch;
  (void)heads;
  return rows * round_up(last, unit) * size_of(mask.dtype);
}

void efficient_forward(RuleContext& op) {
  const Heads h = heads_of(op.args.tensor(0), op.args.tensor(1), op.args.tensor(2));
  const int mask = op.program.alloc(padded_mask(op.args.tensor(3), h.batch, h.heads));
  op.program.outputs();
  op.program.free(mask);
}

// Tiles of CUTLASS' backward kernel: rows of queries, and columns of the head.
struct Tile {
  std::int64_t rows;
  std::int64_t columns;
};
Tile backward_tile(const Heads& h) {
  if (h.size <= 32) return {64, 32};
  if (h.size <= 64) return {64, 64};
  return {64, 128};
}

// Sums over keys meet in float, tile by tile, each with a lock.
std::int64_t efficient_backward_bytes(const Heads& h, bool accumulate) {
  if (!accumulate) return 0;
  constexpr std::int64_t kLock = 16;
  const Tile tile = backward_tile(h);
  const std::int64_t tiles =
      ((h.queries + tile.rows - 1) / tile.rows) * ((h.size + tile.columns - 1) / tile.columns);
  return h.batch * h.heads * tiles * (tile.rows * tile.columns * 4 + kLock);
}

void efficient_backward(RuleContext& op) {
  const Heads h = heads_of(op.args.tensor(1), op.args.tensor(2), op.args.tensor(3));
  const TensorMeta& out = op.args.tensor(5);
  op.program.outputs();
  const std::int64_t wide = out.numel() * 4;
  const std::int64_t row_sums = h.batch * h.heads * h.queries * 4;
  const int gradient = op.program.alloc(h.element == 4 ? 0 : wide);
  const int result = op.program.alloc(h.element == 4 ? 0 : wide);
  const int product = op.program.alloc(wide);
  op.program.free(result);
  op.program.free(gradient);
  const int sums = op.program.alloc(row_sums);
  const int delta = op.program.alloc(row_sums);
  op.program.free(sums);
  op.program.free(product);
  const Scratch workspace(op.program, efficient_backward_bytes(h, true), Certainty::kModelled);
  op.program.free(delta);
}

constexpr NamedRule kRules[] = {
    {"aten::_scaled_dot_product_cudnn_attention", cudnn_forward},
    {"aten::_scaled_dot_product_cudnn_attention_backward", cudnn_backward},
    {"aten::_scaled_dot_product_flash_attention_backward", flash_backward},
    {"aten::_scaled_dot_product_efficient_attention", efficient_forward},
    {"aten::_scaled_dot_product_efficient_attention_backward", efficient_backward},
};

}  // namespace

std::span<const NamedRule> attention_rules() { return kRules; }

}  // namespace peakline::kernels
