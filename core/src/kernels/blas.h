// cuBLAS and cuBLASLt: the workspaces that torch keeps per handle and stream.
#pragma once

#include "kernels/rules.h"

namespace peakline::kernels {

// The steps that getting a handle takes.
void use_cublas(RuleContext& op);
void use_cublaslt(RuleContext& op);

}  // namespace peakline::kernels
