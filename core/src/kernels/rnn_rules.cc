// cuDNN's recurrent networks. Source: aten/src/ATen/native/cudnn/RNN.cpp; sizes of workspace and
// reserve are cuDNN's and modelled.
#include <algorithm>

#include "kernels/rnn_workspace.h"
#include "kernels/rule_tables.h"

namespace peakline::kernels {
namespace {

// What was never measured has the same workspace, for want of a better one.
Certainty certainty_of(const Rnn& r) {
  const bool known = (r.training || r.packed) && r.projection == 0;
  return known ? Certainty::kModelled : Certainty::kGuessed;
}

Rnn read(const OpArgs& args, const TensorMeta& input, std::size_t mode_at) {
  Rnn r;
  r.mode = static_cast<RnnMode>(args.integer(mode_at, 2));
  r.hidden = args.integer(mode_at + 1, 1);
  r.projection = args.integer(mode_at + 2, 0);
  r.layers = std::max<std::int64_t>(1, args.integer(mode_at + 3, 1));
  r.batch_first = args.flag(mode_at + 4);
  r.dropout = args.real(mode_at + 5) > 0 && r.layers > 1;
  r.training = args.flag(mode_at + 6, true);
  r.directions = args.flag(mode_at + 7) ? 2 : 1;
  r.dtype = input.dtype;
  if (input.sizes.size() == 3) {
    r.length = input.sizes[r.batch_first ? 1 : 0];
    r.batch = input.sizes[r.batch_first ? 0 : 1];
    r.input = input.sizes[2];
  } else if (input.sizes.size() == 2) {  // one row for each step of each sequence
    const std::vector<std::int64_t>& batches = args.integers(mode_at + 8);
    r.packed = true;
    r.length = static_cast<std::int64_t>(batches.size());
    r.batch = batches.empty() ? 1 : batches[0];
    r.input = input.sizes[1];
  }
  // What cuDNN keeps of packed sequences is kept of the steps that are there.
  r.steps = r.packed ? input.sizes[0] : r.length * r.batch;
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
  const Scratch workspace(op.program, rnn_workspace(r, RnnPass::kForward), certainty_of(r));
  if (r.training) op.program.output_of(3, rnn_reserve(r), Certainty::kModelled);
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
  const Scratch cell(op.program, r.mode != RnnMode::kLstm || op.args.tensor(9).defined ? 0 : state);
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
    cell_gradient = r.mode == RnnMode::kLstm ? state_output(op, 2, state) : -1;
    op.program.flash(rnn_workspace(r, RnnPass::kBackward), certainty_of(r));
  }
  const Scratch dense(op.program, dense_copy(r, input));
  op.program.output_of(3, weight_bytes(op.args.tensors(1)), Certainty::kExact);
  op.program.flash(rnn_workspace(r, RnnPass::kBackward), certainty_of(r));
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
