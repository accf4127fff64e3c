#include "cost/rules.h"

namespace peakline::cost {
namespace {

struct Attention {
  double heads = 0;  // of all examples
  double queries = 0;
  double keys = 0;
  double size = 0;  // of a head
  double value_size = 0;
  DType dtype = DType::kBFloat16;
  bool causal = false;
  bool masked = false;   // by a tensor
  bool aligned = false;  // whose rows are whole loads
};

Attention attention(const TensorMeta& q, const TensorMeta& k, const TensorMeta& v, bool causal) {
  Attention a;
  if (q.sizes.size() < 4 || k.sizes.size() < 4 || v.sizes.size() < 4) return a;
  a.heads = static_cast<double>(q.sizes[0] * q.sizes[1]);
  a.queries = static_cast<double>(q.sizes[2]);
  a.size = static_cast<double>(q.sizes[3]);
  a.keys = static_cast<double>(k.sizes[2]);
  a.value_size = static_cast<double>(v.sizes[3]);
  a.dtype = q.dtype;
  a.causal = causal;
  return a;
}

// How a kernel's blocks work: `rows` of the queries (backward: of the keys) each, against all of the
// other side in steps of `columns`; `share` of the peak in a full block. Heads of 64 have half the
// products for each exponential.
struct Blocks {
  double rows;
  double columns;
  double share64;
  double share128;
  double start_us;
  double starts;  // of a block, in those of a plain one: what it loads before, and writes after
  double alone;   // how much longer a block takes with a multiprocessor to itself, which then waits
  double mask[2];  // instructions for each pair, with rows that are whole loads and without
};
constexpr Blocks kTensorForward{128, 128, 0.56, 0.74, 0.4, 1, 1, {18, 64}};
constexpr Blocks kTensorBackward{128, 64, 0.56, 0.71, 0.4, 2, 1, {32, 32}};
constexpr Blocks kVectorForward{64, 64, 0.68, 0.86, 3.0, 0, 1.7, {40, 40}};
constexpr Blocks kVectorBackward{64, 64, 0.69, 0.71, 8.0, 0, 1.75, {25, 25}};

// Kernels are made for heads of 64, 128 and 256. With tensor cores smaller ones cost as much; other
// kernels leave out a part of what is beyond.
double computed_size(double size, bool tensor) {
  const double made = size <= 64 ? 64 : size <= 128 ? 128 : std::max(256.0, size);
  constexpr double kLeftOut = 0.35;
  return tensor ? made : made - kLeftOut * (made - size);
}

// What a block visits of the other side: with a causal mask, the steps up to its own diagonal.
double visited(const Attention& a, const Blocks& blocks, bool backward) {
  if (!a.causal) return backward ? a.queries : a.keys;
  const double keys_of_query = std::min(
      a.keys, (std::min(a.queries, a.keys) + blocks.rows) / 2 + std::max(0.0, a.keys - a.queries));
  return backward ? keys_of_query * a.queries / std::max(1.0, a.keys) : keys_of_query;
}

void add_attention(const Attention& a, bool backward, double products, OpTimer& op) {
  const Machine& machine = op.machine();
  const TimeRates& r = machine.rates();
  const bool tensor = is_reduced_float(a.dtype);
  const Blocks& blocks = tensor ? (backward ? kTensorBackward : kTensorForward)
                                : (backward ? kVectorBackward : kVectorForward);
  // Blocks on the diagonal compute products that the mask throws away.
  constexpr double kDiagonal = 0.9;
  const double share =
      (a.size <= 64 ? blocks.share64 : blocks.share128) * (a.causal && backward ? kDiagonal : 1);
  const double peak = tensor ? r.tensor16_tflops * r.tensor_share : r.f32_tflops * r.vector_share;
  const double rate = peak * share / machine.sms();
  const double outer = backward ? a.keys : a.queries;
  const double tiles = a.heads * ceil_div(outer, blocks.rows);
  const double flops_per_pair =
      products * (computed_size(a.size, tensor) + computed_size(a.value_size, tensor));
  const double depth = visited(a, blocks, backward);
  const double block_us =
      blocks.rows * ceil_div(depth, blocks.columns) * blocks.columns * flops_per_pair / rate / 1e6 +
      blocks.starts * r.block_us;
  // Blocks of causal attention differ in length, and the long ones start first: the last wave fills.
  const double waves =
      a.causal ? std::max(1.0, tiles / machine.sms() + 0.5) : ceil_div(tiles, machine.sms());
  const double all = backward ? a.queries : a.keys;
  const double longest = block_us * (a.causal ? std::min(2.0, all / depth) : blocks.alone);
  const double looked_at = tiles * blocks.rows * ceil_div(depth, blocks.columns) * blocks.columns;
  const double mask_us =
      a.masked ? machine.instructions_us(looked_at * blocks.mask[a.aligned ? 0 : 1]) : 0;
  const auto element = static_cast<double>(size_of(a.dtype));
  const double bytes =
      element * a.heads * (a.queries + a.keys) * (a.size + a.value_size) * (backward ? 2 : 1);
  const double pairs = a.heads * outer * depth;
  op.add({.compute_us = std::max(waves * block_us, longest) + mask_us,
          .memory_us = machine.memory_us(bytes),
          .latency_us = blocks.start_us},
         bytes, pairs * products * (a.size + a.value_size));
  if (!backward) return;
  // Before: the row sums of gradient times result. After: gradients of the queries, added up in
  // single precision, become the tensors' own.
  const double rows = element * a.heads * a.queries * a.value_size * 2;
  op.add({.memory_us = machine.memory_us(rows)}, rows);
  const double sums = a.heads * a.queries * a.size * (4 + element);
  op.add({.memory_us = machine.memory_us(sums)}, sums);
}

}  // namespace

bool attention_rules(const CallView& view, OpTimer& op) {
  const kernels::OpArgs& args = view.args;
  // Two products forward (2 * 2 flops by half of both head sizes), five backward.
  constexpr double kForward = 2;
  constexpr double kBackward = 5;
  struct Form {
    std::string_view name;
    int causal;
    int mask;  // -1: takes none
    bool backward;
  };
  static constexpr Form kForms[] = {
      {"_scaled_dot_product_cudnn_attention", 6, 3, false},
      {"_scaled_dot_product_flash_attention", 4, -1, false},
      {"_scaled_dot_product_efficient_attention", 6, 3, false},
      {"_scaled_dot_product_cudnn_attention_backward", 14, 8, true},
      {"_scaled_dot_product_flash_attention_backward", 11, -1, true},
      {"_scaled_dot_product_efficient_attention_backward", 11, 4, true},
      {"_scaled_dot_product_flash_attention_for_cpu", 4, -1, false},
      {"_scaled_dot_product_flash_attention_for_cpu_backward", 7, -1, true},
  };
  for (const Form& form : kForms) {
    if (form.name != view.name) continue;
    const std::size_t q = form.backward ? 1 : 0;
    const bool causal = args.flag(static_cast<std::size_t>(form.causal));
    Attention a = attention(args.tensor(q), args.tensor(q + 1), args.tensor(q + 2), causal);
    if (form.mask >= 0) {
      const TensorMeta& mask = args.tensor(static_cast<std::size_t>(form.mask));
      a.masked = mask.defined;
      a.aligned = mask.defined && !mask.sizes.empty() && mask.sizes.back() % 8 == 0;
    }
    add_attention(a, form.backward, form.backward ? kBackward : kForward, op);
    return true;
  }
  return false;
}

}  // namespace peakline::cost
