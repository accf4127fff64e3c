// Which kernels the target GPU would run, where torch's C++ asks a function instead of an op.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace peakline::vgpu {

// Stands for torch's choice of an attention backend on CUDA (SDPBackend as a number).
std::int64_t choose_attention(const at::Tensor& query, const at::Tensor& key,
                              const at::Tensor& value, const std::optional<at::Tensor>& mask,
                              double dropout, bool causal, std::optional<double> scale, bool gqa);

// Stand for cuDNN's recurrent networks.
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

}  // namespace peakline::vgpu
