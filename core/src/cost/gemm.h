// Matrix products: which tile, how many waves of them, and what moves.
#pragma once

#include <peakline/dtype.h>

#include "cost/machine.h"

namespace peakline::cost {

// out[m, n] = a[m, k] * b[k, n], `batch` times.
struct Gemm {
  double batch = 1;
  double m = 0;
  double n = 0;
  double k = 0;
  DType dtype = DType::kFloat32;
  bool allow_tf32 = false;
  int alignment = 8;  // elements: what divides every leading dimension, 1 to 8
  double share = 1;   // of the rate of a plain product: convolutions gather their operands
  double bytes = -1;  // what moves; below zero: the three matrices
};

// The largest power of two up to 8 that divides all three.
int alignment_of(double a, double b, double c) noexcept;

void add_gemm(const Gemm& gemm, OpTimer& op);

}  // namespace peakline::cost
