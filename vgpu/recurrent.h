// Recurrent networks as cuDNN runs them: torch's C++ asks these functions instead of an op.
#pragma once

#include <ATen/core/Tensor.h>

namespace peakline::vgpu {

void run_lstm(at::Tensor& output, at::Tensor& hy, at::Tensor& cy, const at::Tensor& input,
              at::TensorList hx, at::TensorList params, bool has_biases, std::int64_t layers,
              double dropout, bool train, bool bidirectional, bool batch_first);
void run_gru(at::Tensor& output, at::Tensor& hy, const at::Tensor& input, const at::Tensor& hx,
             at::TensorList params, bool has_biases, std::int64_t layers, double dropout,
             bool train, bool bidirectional, bool batch_first);
void run_rnn_tanh(at::Tensor& output, at::Tensor& hy, const at::Tensor& input, const at::Tensor& hx,
                  at::TensorList params, bool has_biases, std::int64_t layers, double dropout,
                  bool train, bool bidirectional, bool batch_first);
void run_rnn_relu(at::Tensor& output, at::Tensor& hy, const at::Tensor& input, const at::Tensor& hx,
                  at::TensorList params, bool has_biases, std::int64_t layers, double dropout,
                  bool train, bool bidirectional, bool batch_first);

// Of packed sequences: one row for each step of each sequence.
void run_packed_lstm(at::Tensor& output, at::Tensor& hy, at::Tensor& cy, const at::Tensor& data,
                     const at::Tensor& batch_sizes, at::TensorList hx, at::TensorList params,
                     bool has_biases, std::int64_t layers, double dropout, bool train,
                     bool bidirectional);
using PackedFn = void (*)(at::Tensor& output, at::Tensor& hy, const at::Tensor& data,
                          const at::Tensor& batch_sizes, const at::Tensor& hx,
                          at::TensorList params, bool has_biases, std::int64_t layers,
                          double dropout, bool train, bool bidirectional);
PackedFn packed_gru();
PackedFn packed_rnn_tanh();
PackedFn packed_rnn_relu();

}  // namespace peakline::vgpu
