// Recurrent networks as cuDNN runs them: one op for all layers, over one buffer of weights.
#include "vgpu/recurrent.h"

#include <ATen/ATen.h>

namespace peakline::vgpu {
namespace {

enum Mode : std::int64_t { kRelu = 0, kTanh = 1, kLstm = 2, kGru = 3 };

struct Network {
  Mode mode;
  bool has_biases;
  std::int64_t layers;
  double dropout;
  bool train;
  bool bidirectional;
  bool batch_first;
};

// The one buffer that all weights lie in, if they do (nn.RNN's flatten_parameters).
std::optional<at::Tensor> weight_buffer(at::TensorList params) {
  std::int64_t elements = 0;
  for (const at::Tensor& param : params) {
    if (!param.storage().is_alias_of(params[0].storage())) return std::nullopt;
    elements += param.numel();
  }
  const auto in_storage =
      static_cast<std::int64_t>(params[0].storage().nbytes() / params[0].element_size());
  if (in_storage < elements) return std::nullopt;
  return at::empty({0}, params[0].options()).set_(params[0].storage(), 0, {in_storage}, {1});
}

std::optional<at::Tensor> dropout_state(const Network& network, const at::Tensor& input) {
  if (network.dropout <= 0 || !network.train) return std::nullopt;
  return at::_cudnn_init_dropout_state(network.dropout, network.train, 0,
                                       input.options().dtype(at::kByte));
}

auto run(const Network& network, const at::Tensor& input, const at::Tensor& hx,
         const std::optional<at::Tensor>& cx, at::TensorList params,
         at::IntArrayRef batch_sizes = {}) {
  const std::int64_t hidden = network.mode == kLstm && cx ? cx->size(2) : hx.size(2);
  const std::int64_t projected = hx.size(2) != hidden ? hx.size(2) : 0;
  return at::_cudnn_rnn(input, params, network.has_biases ? 4 : 2, weight_buffer(params), hx, cx,
                        network.mode, hidden, projected, network.layers, network.batch_first,
                        network.dropout, network.train, network.bidirectional, batch_sizes,
                        dropout_state(network, input));
}

void run_simple(const Network& network, at::Tensor& output, at::Tensor& hy, const at::Tensor& input,
                const at::Tensor& hx, at::TensorList params, at::IntArrayRef batch_sizes = {}) {
  auto results = run(network, input, hx, std::nullopt, params, batch_sizes);
  output = std::get<0>(results);
  hy = std::get<1>(results);
}

// How many sequences of a packed batch have a first, a second, … step: they are in host memory.
at::IntArrayRef numbers(const at::Tensor& batch_sizes) {
  TORCH_CHECK(batch_sizes.dim() == 1 && batch_sizes.is_cpu(), "batch_sizes tensor should be 1D");
  return {batch_sizes.const_data_ptr<std::int64_t>(),
          static_cast<std::size_t>(batch_sizes.numel())};
}

template <Mode kMode>
void run_packed(at::Tensor& output, at::Tensor& hy, const at::Tensor& data,
                const at::Tensor& batch_sizes, const at::Tensor& hx, at::TensorList params,
                bool has_biases, std::int64_t layers, double dropout, bool train,
                bool bidirectional) {
  run_simple({kMode, has_biases, layers, dropout, train, bidirectional, /*batch_first=*/false},
             output, hy, data, hx, params, numbers(batch_sizes));
}

}  // namespace

void run_packed_lstm(at::Tensor& output, at::Tensor& hy, at::Tensor& cy, const at::Tensor& data,
                     const at::Tensor& batch_sizes, at::TensorList hx, at::TensorList params,
                     bool has_biases, std::int64_t layers, double dropout, bool train,
                     bool bidirectional) {
  auto results =
      run({kLstm, has_biases, layers, dropout, train, bidirectional, /*batch_first=*/false}, data,
          hx[0], hx[1], params, numbers(batch_sizes));
  output = std::get<0>(results);
  hy = std::get<1>(results);
  cy = std::get<2>(results);
}

PackedFn packed_gru() { return &run_packed<kGru>; }
PackedFn packed_rnn_tanh() { return &run_packed<kTanh>; }
PackedFn packed_rnn_relu() { return &run_packed<kRelu>; }

void run_lstm(at::Tensor& output, at::Tensor& hy, at::Tensor& cy, const at::Tensor& input,
              at::TensorList hx, at::TensorList params, bool has_biases, std::int64_t layers,
              double dropout, bool train, bool bidirectional, bool batch_first) {
  auto results = run({kLstm, has_biases, layers, dropout, train, bidirectional, batch_first}, input,
                     hx[0], hx[1], params);
  output = std::get<0>(results);
  hy = std::get<1>(results);
  cy = std::get<2>(results);
}

void run_gru(at::Tensor& output, at::Tensor& hy, const at::Tensor& input, const at::Tensor& hx,
             at::TensorList params, bool has_biases, std::int64_t layers, double dropout,
             bool train, bool bidirectional, bool batch_first) {
  run_simple({kGru, has_biases, layers, dropout, train, bidirectional, batch_first}, output, hy,
             input, hx, params);
}

void run_rnn_tanh(at::Tensor& output, at::Tensor& hy, const at::Tensor& input, const at::Tensor& hx,
                  at::TensorList params, bool has_biases, std::int64_t layers, double dropout,
                  bool train, bool bidirectional, bool batch_first) {
  run_simple({kTanh, has_biases, layers, dropout, train, bidirectional, batch_first}, output, hy,
             input, hx, params);
}

void run_rnn_relu(at::Tensor& output, at::Tensor& hy, const at::Tensor& input, const at::Tensor& hx,
                  at::TensorList params, bool has_biases, std::int64_t layers, double dropout,
                  bool train, bool bidirectional, bool batch_first) {
  run_simple({kRelu, has_biases, layers, dropout, train, bidirectional, batch_first}, output, hy,
             input, hx, params);
}

}  // namespace peakline::vgpu
