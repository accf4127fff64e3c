// cuDNN's recurrent networks: the inputs of all steps in one product, the hidden state in one small
// product a step.
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
  n.hidden = static_cast<double>(view.args.integer(mode + 1, 1));
  n.layers = static_cast<double>(view.args.integer(mode + 3, 1));
  const bool batch_first = view.args.flag(mode + 4);
  n.directions = view.args.flag(mode + 7) ? 2 : 1;
  if (input.sizes.size() == 3) {
    n.steps = static_cast<double>(input.sizes[batch_first ? 1 : 0]);
    n.batch = static_cast<double>(input.sizes[batch_first ? 0 : 1]);
    n.input = static_cast<double>(input.sizes[2]);
  }
  n.allow_tf32 = view.state.switches.cudnn_allow_tf32;
  return n;
}

Gemm product(const Network& n, double m, double columns, double k) {
  return {.m = m, .n = columns, .k = k, .dtype = n.dtype, .allow_tf32 = n.allow_tf32};
}

// A step after another: a small product, and the cell's arithmetic.
void add_steps(const Network& n, const Gemm& hidden, OpTimer& op) {
  const auto steps = static_cast<std::int64_t>(n.steps);
  for (std::int64_t i = 0; i < steps; ++i) {
    add_gemm(hidden, op);
    op.add({});
  }
}

// Each direction by itself.
void add_forward(const Network& n, double width, OpTimer& op) {
  add_gemm(product(n, n.steps * n.batch, n.gates * n.hidden, width), op);
  add_steps(n, product(n, n.batch, n.gates * n.hidden, n.hidden), op);
}

// Gradients of the hidden state step by step; those of the inputs and of both weights at once.
void add_backward(const Network& n, double width, OpTimer& op) {
  const double rows = n.steps * n.batch;
  add_steps(n, product(n, n.batch, n.hidden, n.gates * n.hidden), op);
  add_gemm(product(n, rows, width, n.gates * n.hidden), op);
  add_gemm(product(n, n.gates * n.hidden, width, rows), op);
  add_gemm(product(n, n.gates * n.hidden, n.hidden, rows), op);
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
