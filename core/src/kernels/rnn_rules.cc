// cuDNN's recurrent networks. Source: aten/src/ATen/native/cudnn/RNN.cpp; sizes of workspace and
// reserve are cuDNN's and modelled.
#include <algorithm>

#include "kernels/rule_tables.h"

namespace peakline::kernels {
namespace {

enum Mode : std::int64_t { kRelu = 0, kTanh = 1, kLstm = 2, kGru = 3 };

struct Rnn {
  std::int64_t mode = kLstm;
  std::int64_t hidden = 1;
  std::int64_t input = 1;
  std::int64_t layers = 1;
  std::int64_t directions = 1;
  std::int64_t length = 1;
  std::int64_t batch = 1;
  std::int64_t element = 4;
  bool dropout = false;
  bool training = true;
  bool batch_first = false;

  [[nodiscard]] std::int64_t gates() const { return mode == kLstm ? 4 : mode == kGru ? 3 : 1; }
  [[nodiscard]] std::int64_t steps() const { return length * batch; }
  // Numbers kept per hidden unit and step for the backward pass: the gates, and the cell of an LSTM
  // or three more products of a GRU.
  [[nodiscard]] std::int64_t kept() const { return mode == kLstm ? 5 : mode == kGru ? 6 : 1; }
};

// What the backward pass needs: gates of every layer, outputs between layers, and dropout's masks.
std::int64_t reserve_bytes(const Rnn& r) {
  const std::int64_t unit = r.steps() * r.hidden * r.directions;
  std::int64_t bytes = r.layers * r.kept() * unit * r.element;
  bytes += (r.layers - 1) * unit * r.element;
  if (r.dropout) bytes += (r.layers - 1) * unit * r.directions / 8;
  return bytes + 256;
}

// Weights in cuDNN's own order, gradients of the gates, and states between steps.
std::int64_t workspace_bytes(const Rnn& r) {
  const std::int64_t unit = r.steps() * r.hidden * r.directions * r.element;
  const std::int64_t recurrent = r.gates() * r.hidden * r.hidden * r.element;
  std::int64_t weights = 0;
  for (std::int64_t layer = 0; layer < r.layers; ++layer) {
    const std::int64_t width = layer == 0 ? r.input : r.hidden * r.directions;
    weights += r.directions * r.gates() * r.hidden * (width + r.hidden) * r.element;
  }
  std::int64_t bytes = weights + recurrent * r.directions * (r.layers + 1) + 4 * unit + 512;
  if (r.element == 2) bytes += unit / 2;
  if (r.directions == 2) bytes += unit / 32 * 57;
  const std::int64_t states = r.mode == kLstm ? 10 : 5;
  return bytes + states * r.layers * r.directions * r.batch * r.hidden * r.element;
}

Rnn read(const OpArgs& args, const TensorMeta& input, std::size_t mode_at) {
  Rnn r;
  r.mode = args.integer(mode_at, kLstm);
  r.hidden = args.integer(mode_at + 1, 1);
  r.layers = std::max<std::int64_t>(1, args.integer(mode_at + 3, 1));
  r.batch_first = args.flag(mode_at + 4);
  r.dropout = args.real(mode_at + 5) > 0 && r.layers > 1;
  r.training = args.flag(mode_at + 6, true);
  r.directions = args.flag(mode_at + 7) ? 2 : 1;
  r.element = size_of(input.dtype);
  if (input.sizes.size() == 3) {
    r.length = input.sizes[r.batch_first ? 1 : 0];
    r.batch = input.sizes[r.batch_first ? 0 : 1];
    r.input = input.sizes[2];
  }
  return r;
}

std::int64_t weight_bytes(const std::vector<TensorMeta>& weights) {
  std::int64_t bytes = 0;
  for (const TensorMeta& w : weights) bytes += w.bytes().raw();
  return bytes;
}

std::int64_t dense_copy(const Rnn& r, const TensorMeta& t) {
  if (!r.batch_first) return t.contiguous() ? 0 : t.bytes().raw();
  // Time goes first: dense already only when it was stored so.
  const bool stored_so = t.sizes.size() == 3 && t.strides.size() == 3 && t.strides[2] == 1 &&
                         t.strides[0] == t.sizes[2] && t.strides[1] == t.sizes[0] * t.sizes[2];
  return stored_so || r.batch == 1 || r.length == 1 ? 0 : t.bytes().raw();
}

// cuDNN's generator state, made once per device: 24 bytes per thread the GPU can run.
void dropout_state(RuleContext& op) {
  const std::int64_t threads = std::int64_t{op.gpu.sm_count} * op.gpu.max_threads_per_sm;
  op.program.workspace("cudnn_dropout", threads * 24, WorkspaceScope::kDevice);
}

// _cudnn_rnn(input, weight, weight_stride0, weight_buf, hx, cx, mode, hidden_size, proj_size,
//            num_layers, batch_first, dropout, train, bidirectional, batch_sizes, dropout_state)
void forward(RuleContext& op) {
  const TensorMeta& input = op.args.tensor(0);
  const Rnn r = read(op.args, input, 6);
  if (r.dropout && r.training) dropout_state(op);
  const Scratch dense(op.program, dense_copy(r, input));
  op.program.output(0);
  op.program.output(1);
  op.program.output(2);
  if (!op.args.tensor(3).defined || op.args.tensor(3).numel() == 0) {
    op.program.output_of(4, weight_bytes(op.args.tensors(1)), Certainty::kExact);
  }
  const Scratch workspace(op.program, workspace_bytes(r), Certainty::kModelled);
  if (r.training) op.program.output_of(3, reserve_bytes(r), Certainty::kModelled);
}

// Gradients of states are made even when nobody wants them: then as scratch.
int state_output(RuleContext& op, std::size_t index, std::int64_t bytes) {
  if (index < op.call.outputs.size() && op.call.outputs[index].fresh) {
    op.program.output(index);
    return -1;
  }
  return op.program.alloc(bytes);
}

// _cudnn_rnn_backward(input, weight, weight_stride0, weight_buf, hx, cx, output, grad_output,
//   grad_hy, grad_cy, mode, hidden_size, proj_size, num_layers, batch_first, dropout, train,
//   bidirectional, batch_sizes, dropout_state, reserve, output_mask)
void backward(RuleContext& op) {
  const TensorMeta& input = op.args.tensor(0);
  const Rnn r = read(op.args, input, 10);
  const std::int64_t state = op.args.tensor(4).bytes().raw();
  const Scratch hidden(op.program, op.args.tensor(8).defined ? 0 : state);
  const Scratch cell(op.program, r.mode != kLstm || op.args.tensor(9).defined ? 0 : state);
  int hidden_gradient = -1;
  int cell_gradient = -1;
  {
    const Scratch dense(op.program, dense_copy(r, input));
    const Scratch gradient(op.program, dense_copy(r, op.args.tensor(7)));
    const TensorMeta& made = op.args.out(0);
    if (r.batch_first && made.sizes.size() == 3) {  // made with time first, as the input is read
      TensorMeta turned = made;
      turned.strides = {made.sizes[2], made.sizes[0] * made.sizes[2], 1};
      op.program.change_output(0, turned);
    }
    op.program.output(0);
    hidden_gradient = state_output(op, 1, state);
    cell_gradient = r.mode == kLstm ? state_output(op, 2, state) : -1;
    op.program.flash(workspace_bytes(r), Certainty::kModelled);
  }
  const Scratch dense(op.program, dense_copy(r, input));
  op.program.output_of(3, weight_bytes(op.args.tensors(1)), Certainty::kExact);
  op.program.flash(workspace_bytes(r), Certainty::kModelled);
  op.program.free(hidden_gradient);
  op.program.free(cell_gradient);
}

constexpr NamedRule kRules[] = {
    {"aten::_cudnn_rnn", forward},
    {"aten::_cudnn_rnn_backward", backward},
};

}  // namespace

std::span<const NamedRule> rnn_rules() { return kRules; }

}  // namespace peakline::kernels
