// Which algorithm: aten/src/ATen/native/cudnn/RNN.cpp (get_algo). What it takes: a model of what cuDNN
// 9.19 was seen to ask for on an H200, 296 networks (docs/accuracy.md).
#include "kernels/rnn_workspace.h"

#include <algorithm>

namespace peakline::kernels {
namespace {

// Every layer and direction runs on a stream of its own, with cuBLAS' workspace beside it.
constexpr std::int64_t kStreamBytes = std::int64_t{8} << 20;

// torch asks for kernels that keep small states in registers, if the state is small enough.
bool small_state(const Rnn& r, RnnPass pass) {
  const bool plain = r.gates() == 1;
  const std::int64_t most = pass == RnnPass::kForward ? (plain ? 384 : 192) : (plain ? 256 : 128);
  return r.dtype != DType::kBFloat16 && r.projection == 0 && !r.packed && r.hidden <= most;
}

// Numbers: copies of inputs, rows as wide as the wider of input and state, and numbers per hidden unit,
// of every step and of states between steps.
struct Buffers {
  std::int64_t inputs;
  std::int64_t wider;
  std::int64_t steps;
  std::int64_t states;
};

std::int64_t bytes_of(const Buffers& b, const Rnn& r) {
  const std::int64_t unit = r.hidden * r.directions * r.element();
  return (b.inputs * r.input + b.wider * std::max(r.input, r.hidden)) * r.steps * r.element() +
         b.steps * r.steps * unit + b.states * r.layers * r.batch * unit;
}

Buffers small_state_buffers(const Rnn& r) {
  const bool both = r.directions == 2;
  const std::int64_t between = r.layers > 1 ? 1 : 0;
  if (r.mode == RnnMode::kLstm) return {1, 0, both ? 14 + between : 21, both ? 9 : 8};
  const std::int64_t gates = r.mode != RnnMode::kGru ? 0 : both ? 4 : 5;
  return {2, 1, (both ? 9 : 12) + gates + between, both ? 7 : 6};
}

Buffers buffers_of(const Rnn& r) {
  const bool both = r.directions == 2;
  const std::int64_t dropped = r.dropout && r.training && !both ? 1 : 0;
  if (r.mode == RnnMode::kLstm) return {1, 0, both ? 7 : 5 + dropped, both ? 12 : 10};
  const bool gru = r.mode == RnnMode::kGru;
  if (both) return {gru && r.layers == 1 ? 1 : 2, 0, gru || r.layers > 1 ? 6 : 5, 7};
  if (r.layers == 1) return {2, 1, 3, 5};
  return {1, 0, (gru ? 4 : 2) + dropped, 5};
}

// Steps whose inputs are multiplied at once: the fewer sequences, the more.
std::int64_t steps_at_once(const Rnn& r) {
  const std::int64_t wanted = r.batch >= 100 ? 1 : r.batch >= 20 ? 2 : r.batch >= 12 ? 4 : 8;
  return std::clamp<std::int64_t>(r.length / 8, 1, wanted);
}

// What the weights' gradients need is more than what the other passes do, if the state is not large.
// Layers above each other work on different steps at a time.
std::int64_t gradient_bytes(const Rnn& r) {
  if (r.directions == 2) return 0;
  if (r.mode == RnnMode::kLstm) return r.layers == 1 ? bytes_of({2, 1, 3, 11}, r) : 0;
  if (r.layers == 1) return 0;
  const std::int64_t at_once = steps_at_once(r);
  const std::int64_t states = std::max<std::int64_t>(8, 2 * at_once) + r.layers * (5 + 2 * at_once);
  const std::int64_t dropped = r.dropout && r.training ? 1 : 0;
  return bytes_of({2, 1, 2 + dropped, 0}, r) + states * r.batch * r.hidden * r.element();
}

// Numbers a step that a plain network's weight gradients need, which is more than forward does: states,
// and inputs as wide as the wider of both; of two directions, each twice and with the layers' results.
std::int64_t plain_gradient_numbers(const Rnn& r) {
  const std::int64_t wider = std::max(r.input, r.hidden);
  if (r.directions == 1) return r.hidden + wider;
  return (r.layers > 1 ? 4 : 2) * r.hidden + 4 * wider;
}

// Sequences of different lengths: gates of the steps that are there and of the states between them, of
// an LSTM its cells as well, and both directions' results. As measured (packed_rnns_h200.csv), but for
// LSTMs and GRUs whose inputs are much wider than their states, which need more, and long sequences in
// three plain layers, which need less.
std::int64_t packed_bytes(const Rnn& r) {
  const std::int64_t both = r.directions == 2 ? 2 : 0;
  const std::int64_t steps = r.gates() + both;
  const std::int64_t states = steps + (r.mode == RnnMode::kLstm ? 2 : 0);
  const std::int64_t unit = r.hidden * r.directions * r.element();
  const bool gradients_need_more = r.gates() == 1 && r.training;
  const std::int64_t step =
      gradients_need_more ? plain_gradient_numbers(r) * r.element() : steps * unit;
  return step * r.steps + states * r.layers * r.batch * unit;
}

std::int64_t weight_matrices(const Rnn& r) {
  std::int64_t bytes = 0;
  for (std::int64_t layer = 0; layer < r.layers; ++layer) {
    const std::int64_t width = layer == 0 ? r.input : r.hidden * r.directions;
    bytes += r.directions * r.gates() * r.hidden * (width + r.hidden) * r.element();
  }
  return bytes;
}

// Numbers kept per hidden unit and step: the gates, and the cell of an LSTM or three more products of a
// GRU.
std::int64_t kept(const Rnn& r) {
  return r.mode == RnnMode::kLstm ? 5 : r.mode == RnnMode::kGru ? 6 : 1;
}

}  // namespace

// Gates of every layer, outputs between layers, and dropout's masks.
std::int64_t rnn_reserve(const Rnn& r) {
  const std::int64_t unit = r.steps * r.hidden * r.directions;
  std::int64_t bytes = r.layers * kept(r) * unit * r.element();
  bytes += (r.layers - 1) * unit * r.element();
  if (r.dropout) bytes += (r.layers - 1) * unit * r.directions / 8;
  return bytes + 256;
}

// Weights in cuDNN's own order, streams, and the buffers.
std::int64_t rnn_workspace(const Rnn& r, RnnPass pass) {
  const std::int64_t always = weight_matrices(r) + r.layers * r.directions * kStreamBytes;
  if (r.packed) return always + packed_bytes(r) + 256;
  const std::int64_t buffers = small_state(r, pass)
                                   ? bytes_of(small_state_buffers(r), r)
                                   : std::max(bytes_of(buffers_of(r), r), gradient_bytes(r));
  return always + buffers + 512;
}

}  // namespace peakline::kernels
