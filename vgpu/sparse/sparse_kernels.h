// Sparse tensors on the virtual GPU.
//
// A sparse tensor is made of dense ones, and these are virtual; torch itself holds them together.
// torch gives the whole the keys SparseCUDA and SparseCsrCUDA, by its device. Beside a dense virtual
// tensor the key of a call is SparsePrivateUse1 or SparseCsrPrivateUse1. So the same kernels stand
// under both.
#pragma once

#include <torch/library.h>

#include <set>
#include <string>

namespace peakline::vgpu {

// Of COO tensors. Ops for which CUDA shares the CPU's code run that code: it calls dense ops.
void add_coo_kernels(torch::Library& aten);
// Of compressed ones: CSR, CSC, BSR, BSC.
void add_compressed_kernels(torch::Library& aten);
// Ops of dense tensors that give sparse ones. Gives the names of what it added.
std::set<std::string> add_ops_that_give_sparse(torch::Library& aten);

}  // namespace peakline::vgpu
