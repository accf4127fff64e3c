// cuBLAS and cuBLASLt: the workspaces that torch keeps per handle and stream.
#pragma once

#include <cstdint>

#include "kernels/rules.h"

namespace peakline::kernels {

// Bytes of the workspace that torch gives to a cuBLAS handle (CUDABlas handle pool,
// aten/src/ATen/cuda/CublasHandlePool.cpp): 32 MiB on sm90 and sm100, 8.125 MiB elsewhere, unless
// CUBLAS_WORKSPACE_CONFIG says otherwise.
std::int64_t cublas_workspace(const DeviceProfile& gpu, const KernelState& state);
// The same for cuBLASLt: 1 MiB, unless CUBLASLT_WORKSPACE_SIZE (KiB) says otherwise.
std::int64_t cublaslt_workspace(const DeviceProfile& gpu, const KernelState& state);

// The steps that getting a handle takes.
void use_cublas(RuleContext& op);
void use_cublaslt(RuleContext& op);

}  // namespace peakline::kernels
