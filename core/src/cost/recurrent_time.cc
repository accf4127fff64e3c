// cuDNN's recurrent networks: the inputs of all steps in one product, the hidden state in one small
// product a step, or all steps in one kernel that stays.
#include <cstdint>

#include "cost/gemm.h"
#include "cost/rules.h"

namespace peakline::cost {
namespace {

struct Network {
  double steps = 1;
  double batch = 1;
  double input = 1;
  double hidden = 1;
  double layers = 1;
  double directions = 1;
  double gates = 4;
  bool plain = false;   // neither LSTM nor GRU
  bool packed = false;  // sequences of different lengths, in one row
  bool projected = false;
  DType dtype = DType::kFloat32;
  bool allow_tf32 = true;
};

double gates_of(std::int64_t mode) {
  constexpr std::int64_t kLstm = 2;
  constexpr std::int64_t kGru = 3;
  if (mode == kLstm) return 4;
  return mode == kGru ? 3 : 1;
}

Network network_of(const CallView& view, const TensorMeta& input, std::size_t mode) {
  Network n;
  n.dtype = input.dtype;
  n.gates = gates_of(view.args.integer(mode, 2));
  n.plain = n.gates == 1;
  n.projected = view.args.integer(mode + 2, 0) > 0;
  n.hidden = static_cast<double>(view.args.integer(mode + 1, 1));
  n.layers = static_cast<double>(view.args.integer(mode + 3, 1));
  const bool batch_first = view.args.flag(mode + 4);
  n.directions = view.args.flag(mode + 7) ? 2 : 1;
  if (input.sizes.size() == 3) {
    n.steps = static_cast<double>(input.sizes[batch_first ? 1 : 0]);
    n.batch = static_cast<double>(input.sizes[batch_first ? 0 : 1]);
    n.input = static_cast<double>(input.sizes[2]);
  } else if (const auto& rows = view.args.integers(mode + 8);
             !rows.empty() && !input.sizes.empty()) {
    // Packed: a row for each step of each sequence, as many a step as there are sequences left.
    n.packed = true;
    n.steps = static_cast<double>(rows.size());
    n.batch = static_cast<double>(input.sizes[0]) / n.steps;
    n.input = static_cast<double>(input.sizes.back());
  }
  n.allow_tf32 = view.state.switches.cudnn_allow_tf32;
  return n;
}

Gemm product(const Network& n, double m, double columns, double k) {
  return {.m = m, .n = columns, .k = k, .dtype = n.dtype, .allow_tf32 = n.allow_tf32};
}

// All steps in one kernel that keeps the weights: torch asks for it where the state is small, or for one
// layer in half precision (use_rnn_persist_small_h and use_persist_device_heuristics in its RNN.cpp).
bool stays(const Network& n, bool backward) {
  if (n.projected) return false;
  const double small = n.plain ? (backward ? 256 : 384) : (backward ? 128 : 192);
  if (n.hidden <= small) return true;
  if (n.dtype != DType::kFloat16 || n.packed || n.layers != 1 || n.directions != 1) return false;
  const bool fits =
      n.hidden <= 1024 && std::fmod(n.hidden, 128) == 0 && std::fmod(n.input, 128) == 0;
  return fits && (n.batch <= 8 || (std::fmod(n.batch, 16) == 0 && n.batch != 80));
}

// A tile of the state walks the whole depth, since nothing splits it: 32 numbers at a time in single
// precision, 64 in half.
double depth_us(const Network& n, double depth, bool backward) {
  if (is_reduced_float(n.dtype)) return 0.3 + depth / 64 * 0.08;
  return 1.4 + depth / 32 * (backward ? 0.155 : 0.113);
}

// A step after another: a small product, the cell's arithmetic, and backward a buffer zeroed.
void add_steps(const Network& n, double depth, bool backward, OpTimer& op) {
  const auto steps = static_cast<std::int64_t>(n.steps);
  if (stays(n, backward)) {
    const bool half = is_reduced_float(n.dtype);
    const double step_us = half ? (backward ? 4.5 : 1.9) : (backward ? 2.35 : 2.55);
    op.add({.latency_us = n.steps * step_us}, 0);
    return;
  }
  // The product spreads over tiles of 64 by 64; more of them than multiprocessors take turns.
  const double columns = backward ? n.hidden : n.gates * n.hidden;
  const double tiles = ceil_div(n.batch, 64) * ceil_div(columns, 64);
  const double turns = std::max(1.0, ceil_div(tiles, op.machine().sms()));
  const double flops = 2 * n.batch * columns * depth;
  for (std::int64_t i = 0; i < steps; ++i) {
    op.add({.latency_us = depth_us(n, depth, backward) * turns}, 0, flops);
    op.add({.latency_us = 0.3}, 0);
    if (backward && !is_reduced_float(n.dtype)) op.add_memset();
  }
}

// Each direction by itself.
void add_forward(const Network& n, double width, OpTimer& op) {
  add_gemm(product(n, n.steps * n.batch, n.gates * n.hidden, width), op);
  add_steps(n, n.hidden, false, op);
}

// Gradients of the hidden state step by step; those of the inputs and of both weights at once, and of
// the biases by a kernel that reads all gates.
void add_backward(const Network& n, double width, OpTimer& op) {
  const double rows = n.steps * n.batch;
  add_steps(n, n.gates * n.hidden, true, op);
  add_gemm(product(n, rows, width, n.gates * n.hidden), op);
  add_gemm(product(n, n.gates * n.hidden, width, rows), op);
  add_gemm(product(n, n.gates * n.hidden, n.hidden, rows), op);
  const double work = n.gates == 3 ? 890 : 160;
  const double gates = rows * n.gates * n.hidden;
  op.add({.compute_us = op.machine().instructions_us(gates * work)}, gates * 4);
}

template <class Add>
void each_layer(const Network& n, OpTimer& op, Add&& add) {
  const auto layers = static_cast<std::int64_t>(n.layers);
  const auto directions = static_cast<std::int64_t>(n.directions);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const double width = layer == 0 ? n.input : n.hidden * n.directions;
    for (std::int64_t direction = 0; direction < directions; ++direction) add(n, width, op);
  }
}

}  // namespace

bool recurrent_rules(const CallView& view, OpTimer& op) {
  // _cudnn_rnn(input, weights, stride, weight_buf, hx, cx, mode, hidden_size, proj_size, ...)
  if (view.name == "_cudnn_rnn") {
    each_layer(network_of(view, view.args.tensor(0), 6), op, add_forward);
    return true;
  }
  // _cudnn_rnn_backward(input, weights, stride, weight_buf, hx, cx, output, 3 gradients, mode, ...)
  if (view.name == "_cudnn_rnn_backward") {
    each_layer(network_of(view, view.args.tensor(0), 10), op, add_backward);
    return true;
  }
  return false;
}

}  // namespace peakline::cost
