#include "cost/gemm.h"
#include "cost/rules.h"

namespace peakline::cost {
namespace {

double size_at(const TensorMeta& tensor, std::size_t from_end) {
  const std::size_t rank = tensor.sizes.size();
  return rank > from_end ? static_cast<double>(tensor.sizes[rank - 1 - from_end]) : 1;
}

// The stride that is not 1 of the last two dimensions: what cuBLAS calls the leading dimension.
double leading(const TensorMeta& tensor) {
  const std::size_t rank = tensor.strides.size();
  if (rank < 2) return size_at(tensor, 0);
  const std::int64_t inner = tensor.strides[rank - 1];
  const std::int64_t outer = tensor.strides[rank - 2];
  return static_cast<double>(inner == 1 ? outer : inner);
}

Gemm product(const CallView& view, const TensorMeta& a, const TensorMeta& b) {
  Gemm gemm;
  gemm.batch = a.sizes.size() > 2 ? size_at(a, 2) : 1;
  gemm.m = size_at(a, 1);
  gemm.k = size_at(a, 0);
  gemm.n = size_at(b, 0);
  gemm.dtype = a.dtype;
  gemm.allow_tf32 = view.state.switches.matmul_allow_tf32;
  gemm.alignment = alignment_of(leading(a), leading(b), gemm.n);
  return gemm;
}

void add_vector_product(const TensorMeta& a, const TensorMeta& b, OpTimer& op) {
  const double bytes = distinct_bytes(a) + distinct_bytes(b);
  op.add({.memory_us = op.machine().memory_us(bytes)}, bytes, 2 * static_cast<double>(a.numel()));
}

// addmm(bias, a, b): a bias of one row rides in the epilogue; a whole matrix is read like an operand.
void add_with_bias(const CallView& view, OpTimer& op) {
  const TensorMeta& bias = view.args.tensor(0);
  Gemm gemm = product(view, view.args.tensor(1), view.args.tensor(2));
  const auto size = static_cast<double>(size_of(gemm.dtype));
  gemm.bytes = gemm.batch * size * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n) +
               distinct_bytes(bias);
  add_gemm(gemm, op);
}

}  // namespace

bool matrix_rules(const CallView& view, OpTimer& op) {
  const kernels::OpArgs& args = view.args;
  const std::string_view name = view.name;
  if (name == "mm" || name == "bmm" || name == "_scaled_mm" || name == "_int_mm") {
    add_gemm(product(view, args.tensor(0), args.tensor(1)), op);
  } else if (name == "addmm" || name == "baddbmm" || name == "_addmm_activation") {
    add_with_bias(view, op);
  } else if (name == "mv" || name == "dot" || name == "vdot") {
    add_vector_product(args.tensor(0), args.tensor(1), op);
  } else if (name == "addmv") {
    add_vector_product(args.tensor(1), args.tensor(2), op);
  } else if (name == "linear" || name == "matmul") {
    // Seen where nothing decomposes them: all dimensions but the last are rows.
    const TensorMeta& a = args.tensor(0);
    const TensorMeta& b = args.tensor(1);
    Gemm gemm = product(view, a, b);
    if (name == "linear") gemm.n = size_at(b, 1);
    gemm.batch = 1;
    gemm.m = static_cast<double>(a.numel()) / std::max(gemm.k, 1.0);
    add_gemm(gemm, op);
  } else {
    return false;
  }
  return true;
}

}  // namespace peakline::cost
