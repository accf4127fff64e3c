// cuDNN's recurrent networks: the inputs of all steps in one product, the hidden state in one small
// product a step.
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

void add_passes(const Network& n, double times, OpTimer& op) {
  for (double layer = 0; layer < n.layers; ++layer) {
    const double width = layer == 0 ? n.input : n.hidden * n.directions;
    for (double pass = 0; pass < times; ++pass) {
      Gemm inputs{.m = n.steps * n.batch,
                  .n = n.gates * n.hidden * n.directions,
                  .k = width,
                  .dtype = n.dtype,
                  .allow_tf32 = n.allow_tf32};
      add_gemm(inputs, op);
      Gemm step{.batch = n.directions,
                .m = n.batch,
                .n = n.gates * n.hidden,
                .k = n.hidden,
                .dtype = n.dtype,
                .allow_tf32 = n.allow_tf32};
      for (double i = 0; i < n.steps; ++i) add_gemm(step, op);
    }
  }
}

}  // namespace

bool recurrent_rules(const CallView& view, OpTimer& op) {
  // _cudnn_rnn(input, weights, stride, weight_buf, hx, cx, mode, hidden_size, proj_size, ...)
  if (view.name == "_cudnn_rnn") {
    add_passes(network_of(view, view.args.tensor(0), 6), 1, op);
    return true;
  }
  // _cudnn_rnn_backward(input, weights, stride, weight_buf, hx, cx, output, 3 gradients, mode, ...)
  if (view.name == "_cudnn_rnn_backward") {
    add_passes(network_of(view, view.args.tensor(0), 10), 2, op);
    return true;
  }
  return false;
}

}  // namespace peakline::cost
