// Fused attention. Sources: aten/src/ATen/native/transformers/cuda/attention.cu,
// attention_backward.cu, flash_attn/flash_api.cpp, mem_eff_attention/kernel_backward.h,
// aten/src/ATen/native/cudnn/MHA.cpp.
#include <algorithm>
#include <cmath>
#include <utility>

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

// Into how many parts cuDNN cuts the keys of a single query; 1: it does not. One block works on the
// queries that share a head of keys: as long as two such waves fit the GPU at once, the keys are
// halved again, down to 128 for each part. As cuDNN 9.19 plans.
std::int64_t cudnn_key_parts(const Heads& h, std::int64_t processors) {
  constexpr std::int64_t kTooShort = 512;
  constexpr std::int64_t kMostParts = 64;
  constexpr std::int64_t kShortestPart = 128;
  const std::int64_t blocks = h.batch * h.kv_heads;
  if (h.keys <= kTooShort || 2 * blocks > processors) return 1;
  std::int64_t parts = kMostParts;
  while (parts > 1 &&
         (blocks * parts >= 2 * processors || (h.keys + parts - 1) / parts < kShortestPart)) {
    parts /= 2;
  }
  return parts;
}

// A part leaves its result in float, and its largest number and sum, to be joined.
std::int64_t cudnn_forward_bytes(const Heads& h, bool causal, const DeviceProfile& gpu) {
  constexpr std::int64_t kAlign = 128;
  if (h.queries != 1) return gpu.capability() == 90 ? 2 * kAlign : 0;
  const std::int64_t parts = causal ? 1 : cudnn_key_parts(h, gpu.sm_count);
  if (parts == 1) return 0;
  const std::int64_t rows = h.batch * h.heads * parts;
  return rows * h.value_size * 4 + 2 * round_up(rows * 4, kAlign) + kAlign;
}

void cudnn_forward(RuleContext& op) {
  const Heads h = heads_of(op.args.tensor(0), op.args.tensor(1), op.args.tensor(2));
  // philox seed and offset come first, then the result and the logarithms of the sums. Of the returns
  // only tensors count: output, logsumexp, two of sequence lengths, seed, offset, a mask.
  if (op.args.outs() > 5) {
    op.program.output(4);
    op.program.output(5);
  }
  op.program.output(0);
  const bool keeps_sums = op.args.flag(4, true);  // only backward reads them
  if (!keeps_sums) op.program.output_of(1, 0, Certainty::kExact);
  op.program.outputs();
  op.program.flash(cudnn_forward_bytes(h, op.args.flag(6), op.gpu), Certainty::kModelled);
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

// Few queries leave SMs without work; then the keys are split over several blocks, whose results are
// joined after. As flash_api.cpp's num_splits_heuristic decides.
std::int64_t flash_splits(std::int64_t blocks, std::int64_t processors, std::int64_t key_blocks) {
  if (static_cast<double>(blocks) >= 0.8 * static_cast<double>(processors)) return 1;
  const std::int64_t most = std::min({std::int64_t{128}, processors, key_blocks});
  const auto per_split = [&](std::int64_t n) { return (key_blocks + n - 1) / n; };
  const auto useful = [&](std::int64_t n) { return n == 1 || per_split(n) != per_split(n - 1); };
  const auto efficiency = [&](std::int64_t n) {
    const double waves = static_cast<double>(blocks * n) / static_cast<double>(processors);
    return waves / std::ceil(waves);
  };
  double best = 0;
  for (std::int64_t n = 1; n <= most; ++n) {
    if (useful(n)) best = std::max(best, efficiency(n));
  }
  for (std::int64_t n = 1; n <= most; ++n) {
    if (useful(n) && efficiency(n) >= 0.85 * best) return n;
  }
  return 1;
}

// Head sizes that are no multiple of 8 are padded by flash attention's caller, in ops of their own.
void flash_forward(RuleContext& op) {
  const Heads h = heads_of(op.args.tensor(0), op.args.tensor(1), op.args.tensor(2));
  op.program.output(0);
  op.program.output(1);
  std::int64_t splits = 1;
  if (h.batch > 0 && op.args.real(3) == 0) {
    const std::int64_t block = h.size <= 64 ? 256 : h.size <= 128 ? 128 : 64;
    splits = flash_splits(h.batch * h.heads * ((h.queries + 63) / 64),
                          std::int64_t{op.gpu.sm_count} * 2, (h.keys + block - 1) / block);
  }
  const std::int64_t rows = splits > 1 ? splits * h.batch * h.heads * h.queries * 4 : 0;
  const Scratch sums(op.program, rows);
  const Scratch parts(op.program, rows * round_up(h.size, h.size <= 128 ? 32 : 64));
  op.program.outputs();
}

// What the kernel wants as [batch, length, heads, size]: anything else is copied.
std::int64_t heads_last_copy(const TensorMeta& t) {
  if (t.sizes.size() != 4 || t.strides.size() != 4) return 0;
  TensorMeta turned = t;
  std::swap(turned.sizes[1], turned.sizes[2]);
  std::swap(turned.strides[1], turned.strides[2]);
  return turned.contiguous() ? 0 : t.bytes().raw();
}

void flash_backward(RuleContext& op) {
  const Heads h = heads_of(op.args.tensor(1), op.args.tensor(2), op.args.tensor(3));
  const Scratch gradient(op.program, heads_last_copy(op.args.tensor(0)));
  const Scratch result(op.program, heads_last_copy(op.args.tensor(4)));
  op.program.outputs();
  const std::int64_t queries = round_up(h.queries, 128);
  const std::int64_t size = round_up(h.size, h.size <= 128 ? 32 : 64);
  const std::int64_t blocks = std::max<std::int64_t>(1, h.batch * h.heads);
  const std::int64_t splits =
      op.state.switches.deterministic_algorithms ? (op.gpu.sm_count + blocks - 1) / blocks : 1;
  const Scratch sums(op.program, h.batch * h.heads * queries * 4);
  const Scratch query_gradient(op.program, splits * h.batch * h.heads * queries * size * 4);
  const std::int64_t expanded =
      h.heads != h.kv_heads ? h.batch * h.heads * h.keys * h.size * h.element : 0;
  const Scratch key_gradient(op.program, expanded);
  const Scratch value_gradient(op.program, expanded);
}

// Wide heads do not fit into registers: half precision results are then summed in float.
void efficient_forward(RuleContext& op) {
  const Heads h = heads_of(op.args.tensor(0), op.args.tensor(1), op.args.tensor(2));
  op.program.output(0);
  op.program.output(1);
  op.program.output_of(2, 0, Certainty::kExact);  // seed and offset of the generator stay on the
  op.program.output_of(3, 0, Certainty::kExact);  // host, unless a graph is captured
  if (h.element == 4 || h.value_size <= 128) return;
  op.program.flash(h.batch * h.heads * h.queries * h.value_size * 4, Certainty::kModelled);
}

// Tiles of CUTLASS' backward kernel: rows of queries and columns of the head. Where not even a tile
// of the keys' gradients stays in registers, those are summed in memory too.
struct Tile {
  std::int64_t rows;
  std::int64_t columns;
  bool keys_in_memory;
};
Tile backward_tile(const Heads& h) {
  const std::int64_t widest = std::max(h.size, h.value_size);
  if (widest <= 64) return {64, 64, false};
  if (h.element == 4) return {128, 64, false};
  if (widest <= 128) return {128, 128, false};
  return {128, 64, true};
}

// Sums over keys meet in float, tile by tile, each with a lock.
std::int64_t efficient_backward_bytes(const Heads& h) {
  constexpr std::int64_t kLock = 16;
  const Tile tile = backward_tile(h);
  const std::int64_t tiles =
      ((h.queries + tile.rows - 1) / tile.rows) * ((h.size + tile.columns - 1) / tile.columns);
  std::int64_t bytes = tiles * (tile.rows * tile.columns * 4 + kLock);
  if (tile.keys_in_memory) {
    bytes += round_up(h.keys, 64) * 4 *
             (round_up(h.size, tile.rows) + round_up(h.value_size, tile.rows));
  }
  return h.batch * h.heads * bytes;
}

// The gradient is read token by token, with a token's heads side by side, and copied where it lies
// otherwise.
std::int64_t copy_by_token(TensorMeta gradient) {
  if (gradient.sizes.size() != 4 || gradient.strides.size() != 4) return 0;
  std::swap(gradient.sizes[1], gradient.sizes[2]);
  std::swap(gradient.strides[1], gradient.strides[2]);
  return gradient.contiguous() ? 0 : gradient.bytes().raw();
}

void efficient_backward(RuleContext& op) {
  const Heads h = heads_of(op.args.tensor(1), op.args.tensor(2), op.args.tensor(3));
  const Scratch dense_gradient(op.program, copy_by_token(op.args.tensor(0)));
  const TensorMeta& out = op.args.tensor(5);
  op.program.outputs();
  const std::int64_t row_sums = h.batch * h.heads * h.queries * 4;
  int delta = -1;
  if (h.element == 4) {  // half precision kernels make these sums themselves
    const int product = op.program.alloc(out.numel() * 4);
    const int sums = op.program.alloc(row_sums);
    delta = h.heads > 1 ? op.program.alloc(row_sums) : sums;
    if (delta != sums) op.program.free(sums);
    op.program.free(product);
  } else {
    delta = op.program.alloc(row_sums);
  }
  const Scratch workspace(op.program, efficient_backward_bytes(h), Certainty::kModelled);
  op.program.free(delta);
}

constexpr NamedRule kRules[] = {
    {"aten::_scaled_dot_product_cudnn_attention", cudnn_forward},
    {"aten::_scaled_dot_product_cudnn_attention_backward", cudnn_backward},
    {"aten::_scaled_dot_product_flash_attention", flash_forward},
    {"aten::_scaled_dot_product_flash_attention_backward", flash_backward},
    {"aten::_scaled_dot_product_efficient_attention", efficient_forward},
    {"aten::_scaled_dot_product_efficient_attention_backward", efficient_backward},
};

}  // namespace

std::span<const NamedRule> attention_rules() { return kRules; }

}  // namespace peakline::kernels
