// Nested tensors (torch.nested with layout strided) on the virtual GPU: many tensors in one buffer,
// with their sizes on the host. torch makes them; nn.TransformerEncoder does, of a padded batch.
#pragma once

#include <torch/library.h>

#include <set>
#include <string>

namespace peakline::vgpu {

void add_nested_kernels(torch::Library& aten);
// Ops of dense tensors that give nested ones. Gives the names of what it added.
std::set<std::string> add_ops_that_give_nested(torch::Library& aten);

// Stands for CUDA's kernel of a layer norm, which torch's code for nested tensors calls by itself:
// its results have been allocated.
void normalize_rows(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                    std::int64_t rows, std::int64_t columns, double eps, at::Tensor* output,
                    at::Tensor* mean, at::Tensor* rstd);

}  // namespace peakline::vgpu
