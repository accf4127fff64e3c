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
};
constexpr Blocks kTensorForward{128, 128, 0.56, 0.74, 3.0};
constexpr Blocks kTensorBackward{128, 64, 0.56, 0.71, 4.0};
constexpr Blocks kVectorForward{64, 64, 0.68, 0.86, 3.0};
constexpr Blocks kVectorBackward{64, 64, 0.69, 0.71, 8.0};

// Multiply-adds of a block over the depth that it visits: with a causal mask, the steps up to its
// own diagonal.
double visited(const Attention& a, const Blocks& blocks) {
  if (!a.causal) return a.keys;
  return std::min(
      a.keys, (std::min(a.queries, a.keys) + blocks.rows) / 2 + std::max(0.0, a.keys - a.queries));
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
  const double flops_per_pair = products * (a.size + a.value_size);
  const double block_us = blocks.rows * ceil_div(visited(a, blocks), blocks.columns) *
                          blocks.columns * flops_per_pair / rate / 1e6;
  // Blocks of causal attention differ in length, and the long ones start first: the last wave fills.
  const double waves =
      a.causal ? std::max(1.0, tiles / machine.sms() + 0.5) : ceil_div(tiles, machine.sms());
  const double longest =
      a.causal ? block_us * std::min(2.0, a.keys / visited(a, blocks)) : block_us;
  const auto element = static_cast<double>(size_of(a.dtype));
  const double bytes =
      element * a.heads * (a.queries + a.keys) * (a.size + a.value_size) * (backward ? 2 : 1);
  const double pairs = a.heads * a.queries * (a.causal ? visited(a, blocks) : a.keys);
  op.add({.compute_us = std::max(waves * block_us, longest),
          .memory_us = machine.memory_us(bytes),
          .latency_us = blocks.start_us},
         bytes, pairs * flops_per_pair);
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
    bool backward;
  };
  static constexpr Form kForms[] = {
      {"_scaled_dot_product_cudnn_attention", 6, false},
      {"_scaled_dot_product_flash_attention", 4, false},
      {"_scaled_dot_product_efficient_attention", 6, false},
      {"_scaled_dot_product_cudnn_attention_backward", 14, true},
      {"_scaled_dot_product_flash_attention_backward", 11, true},
      {"_scaled_dot_product_efficient_attention_backward", 11, true},
      {"_scaled_dot_product_flash_attention_for_cpu", 4, false},
      {"_scaled_dot_product_flash_attention_for_cpu_backward", 7, true},
  };
  for (const Form& form : kForms) {
    if (form.name != view.name) continue;
    const std::size_t q = form.backward ? 1 : 0;
    const bool causal = args.flag(static_cast<std::size_t>(form.causal));
    add_attention(attention(args.tensor(q), args.tensor(q + 1), args.tensor(q + 2), causal),
                  form.backward, form.backward ? kBackward : kForward, op);
    return true;
  }
  return false;
}

}  // namespace peakline::cost
