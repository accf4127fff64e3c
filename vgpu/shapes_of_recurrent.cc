// Shapes of cuDNN's recurrent networks, and of torch's own cells.
#include <ATen/ATen.h>

#include "vgpu/shape_builder.h"
#include "vgpu/shape_rule_sets.h"

namespace peakline::vgpu {
namespace {

bool given(const c10::IValue& value) { return value.isTensor() && value.toTensor().defined(); }

std::int64_t elements(const c10::IValue& list) {
  std::int64_t sum = 0;
  for (const c10::IValue& item : list.toListRef()) sum += item.toTensor().numel();
  return sum;
}

// What training keeps for backward, beside the output: per layer, direction and time step the gates
// and the cells.
std::int64_t reserve_elements(std::int64_t mode, std::int64_t layers, std::int64_t directions,
                              std::int64_t rows, std::int64_t hidden) {
  const std::int64_t kept = mode == 2 ? 6 : mode == 3 ? 5 : 2;
  return layers * directions * rows * hidden * kept;
}

bool forward(const Call& call, ShapeBuilder& out) {
  const at::Tensor& input = call.args[0].toTensor();
  const at::Tensor& hx = call.args[4].toTensor();
  const std::int64_t hidden = call.args[7].toInt();
  const std::int64_t projected = call.args[8].toInt();
  const std::int64_t directions = call.args[13].toBool() ? 2 : 1;
  const bool batch_first = call.args[10].toBool() && input.dim() == 3;
  const bool packed = !call.args[14].toListRef().empty();
  const std::int64_t width = (projected > 0 ? projected : hidden) * directions;
  const at::ScalarType dtype = input.scalar_type();
  std::int64_t rows = input.size(0);
  if (packed) {
    out.fresh(dtype, {input.size(0), width});
  } else {
    const std::int64_t steps = input.size(batch_first ? 1 : 0);
    const std::int64_t batch = input.size(batch_first ? 0 : 1);
    rows = steps * batch;
    if (batch_first)
      out.fresh(dtype, {batch, steps, width}, {width, batch * width, 1});
    else
      out.fresh(dtype, {steps, batch, width});
  }
  out.fresh(dtype, hx.sizes());
  if (given(call.args[5]))
    out.fresh(dtype, call.args[5].toTensor().sizes());
  else
    out.fresh(dtype, {0});
  const std::int64_t kept =
      reserve_elements(call.args[6].toInt(), call.args[9].toInt(), directions, rows, hidden);
  out.fresh(at::kByte, {call.args[12].toBool() ? kept * input.element_size() : 0});
  if (given(call.args[3]))
    out.argument(static_cast<int>(call.args[1].toListRef().size()) + 1);
  else
    out.fresh(dtype, {elements(call.args[1])});
  return true;
}

// Gradients of the weights are parts of one buffer, as the weights are.
bool backward(const Call& call, ShapeBuilder& out) {
  const auto mask = call.args[21].toBoolList();
  if (mask[0])
    out.fresh(call.args[0].toTensor().scalar_type(), call.args[0].toTensor().sizes());
  else
    out.undefined();
  for (const std::size_t which : {1, 2}) {
    const c10::IValue& state = call.args[3 + which];
    if (mask[which] && given(state)) {
      out.fresh(state.toTensor().scalar_type(), state.toTensor().sizes());
    } else {
      out.undefined();
    }
  }
  if (mask[3])
    out.parts_of_one(call.args[1]);
  else
    out.no_tensors();
  return true;
}

// _thnn_fused_lstm_cell(input_gates, hidden_gates, cell, …): state, cell, gates.
bool lstm_cell(const Call& call, ShapeBuilder& out) {
  const at::Tensor& gates = call.args[0].toTensor();
  const at::Tensor& cell = call.args[2].toTensor();
  out.fresh(cell.scalar_type(), cell.sizes());
  out.fresh(cell.scalar_type(), cell.sizes());
  out.fresh(gates.scalar_type(), gates.sizes());
  return true;
}

// …_backward_impl(grad_state, grad_cell, cell, new_cell, gates, has_bias)
bool lstm_cell_backward(const Call& call, ShapeBuilder& out) {
  if (!given(call.args[0]) && !given(call.args[1])) return false;
  const at::Tensor& cell = call.args[2].toTensor();
  const at::Tensor& gates = call.args[4].toTensor();
  out.fresh(gates.scalar_type(), gates.sizes());
  out.fresh(cell.scalar_type(), cell.sizes());
  if (call.args[5].toBool())
    out.fresh(gates.scalar_type(), {gates.size(1)});
  else
    out.undefined();
  return true;
}

constexpr std::int64_t kKeptByGru = 5;  // numbers per hidden unit, for backward

bool gru_cell(const Call& call, ShapeBuilder& out) {
  const at::Tensor& state = call.args[2].toTensor();
  out.fresh(state.scalar_type(), state.sizes());
  out.fresh(state.scalar_type(), {state.size(0), state.size(1) * kKeptByGru});
  return true;
}

bool gru_cell_backward(const Call& call, ShapeBuilder& out) {
  const at::Tensor& gradient = call.args[0].toTensor();
  const at::Tensor& kept = call.args[1].toTensor();
  const std::int64_t gates = 3 * kept.size(1) / kKeptByGru;
  const at::ScalarType dtype = kept.scalar_type();
  out.fresh(dtype, {kept.size(0), gates});
  out.fresh(dtype, {kept.size(0), gates});
  out.fresh(gradient.scalar_type(), gradient.sizes());
  for (int bias = 0; bias < 2; ++bias) {
    if (call.args[2].toBool())
      out.fresh(dtype, {gates});
    else
      out.undefined();
  }
  return true;
}

}  // namespace

void add_recurrent_rules(RuleSet& rules) {
  rules["aten::_cudnn_rnn"] = &forward;
  rules["aten::_cudnn_rnn_backward"] = &backward;
  rules["aten::_thnn_fused_lstm_cell"] = &lstm_cell;
  rules["aten::_thnn_fused_lstm_cell_backward_impl"] = &lstm_cell_backward;
  rules["aten::_thnn_fused_gru_cell"] = &gru_cell;
  rules["aten::_thnn_fused_gru_cell_backward"] = &gru_cell_backward;
}

}  // namespace peakline::vgpu
