// Matrix products. Sources: aten/src/ATen/native/cuda/Blas.cpp, aten/src/ATen/cuda/CublasHandlePool.cpp.
#include "kernels/blas.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "kernels/rule_tables.h"

namespace peakline::kernels {
namespace {

constexpr std::int64_t kKiB = 1024;

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// ":4096:2:16:8" is two blocks of 4096 KiB and eight of 16 KiB.
std::optional<std::int64_t> parse_config(std::string_view text) {
  std::int64_t total = 0;
  while (text.starts_with(':')) {
    text.remove_prefix(1);
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    const std::size_t next = std::min(text.find(':', colon + 1), text.size());
    const auto size = number(text.substr(0, colon));
    const auto count = number(text.substr(colon + 1, next - colon - 1));
    if (!size || !count) return std::nullopt;
    total += *size * *count * kKiB;
    text.remove_prefix(next);
  }
  return text.empty() ? std::optional(total) : std::nullopt;
}

std::int64_t size(const TensorMeta& t, std::size_t dim) { return t.sizes[dim]; }
std::int64_t stride(const TensorMeta& t, std::size_t dim) { return t.strides[dim]; }

// Whether cuBLAS can read the last two dimensions as they lie; otherwise torch copies the matrix.
bool readable(const TensorMeta& matrix) {
  const std::size_t n = matrix.sizes.size();
  if (n < 2 || matrix.strides.size() != n) return true;
  const std::size_t row = n - 2;
  const std::size_t column = n - 1;
  const bool by_row = stride(matrix, column) == 1 &&
                      stride(matrix, row) >= std::max<std::int64_t>(1, size(matrix, column));
  const bool by_column = stride(matrix, row) == 1 &&
                         stride(matrix, column) >= std::max<std::int64_t>(1, size(matrix, row));
  return by_row || by_column || matrix.contiguous();
}

std::int64_t copy_bytes(const TensorMeta& matrix) {
  return readable(matrix) ? 0 : matrix.bytes().raw();
}

void product(RuleContext& op, std::size_t a, std::size_t b) {
  op.program.outputs();
  const Scratch copy_a(op.program, copy_bytes(op.args.tensor(a)));
  const Scratch copy_b(op.program, copy_bytes(op.args.tensor(b)));
  if (op.args.out(0).numel() > 0) use_cublas(op);
}

void mm(RuleContext& op) { product(op, 0, 1); }
void baddbmm(RuleContext& op) { product(op, 1, 2); }

// The bias goes into cuBLASLt's epilogue when it is one row as wide as the result.
bool bias_in_epilogue(const TensorMeta& bias, const TensorMeta& b, const OpArgs& args) {
  const double beta = args.real(3, 1);
  return bias.sizes.size() == 1 && b.sizes.size() == 2 && bias.sizes[0] == b.sizes[1] &&
         bias.contiguous() && beta == 1 && b.sizes[0] > 1 && b.sizes[1] > 1 &&
         (is_floating(b.dtype));
}

void addmm(RuleContext& op) {
  op.program.outputs();
  const TensorMeta& b = op.args.tensor(2);
  const Scratch copy_a(op.program, copy_bytes(op.args.tensor(1)));
  const Scratch copy_b(op.program, copy_bytes(b));
  if (op.args.out(0).numel() == 0) return;
  use_cublas(op);
  if (bias_in_epilogue(op.args.tensor(0), b, op.args)) use_cublaslt(op);
}

// Matrix by vector, and dot products: a handle, and no copies of note.
void vector_product(RuleContext& op) {
  op.program.outputs();
  use_cublas(op);
}

void lt_product(RuleContext& op) {
  op.program.outputs();
  use_cublas(op);
  use_cublaslt(op);
}

// Solves triangular systems with cuBLAS: the permutation of the pivots in three steps, and a copy of
// the right side, are beside it.
void lu_solve(RuleContext& op) {
  op.program.outputs();
  const TensorMeta& left = op.args.tensor(0);
  const std::int64_t rows = left.sizes.empty() ? 0 : left.sizes.back();
  const Scratch permutation(op.program, rows * 3 * 8);
  const Scratch right(op.program, op.args.tensor(1).bytes().raw());
  use_cublas(op);
}

constexpr NamedRule kRules[] = {
    {"aten::_linalg_solve_ex", lu_solve},
    {"aten::mm", mm},
    {"aten::bmm", mm},
    {"aten::baddbmm", baddbmm},
    {"aten::baddbmm_", baddbmm},
    {"aten::addbmm", baddbmm},
    {"aten::addmm", addmm},
    {"aten::addmm_", addmm},
    {"aten::_addmm_activation", addmm},
    {"aten::mv", vector_product},
    {"aten::addmv", vector_product},
    {"aten::addmv_", vector_product},
    {"aten::dot", vector_product},
    {"aten::vdot", vector_product},
    {"aten::_int_mm", lt_product},
    {"aten::_scaled_mm", lt_product},
};

}  // namespace

std::span<const NamedRule> blas_rules() { return kRules; }

std::int64_t cublas_workspace(const DeviceProfile& gpu, const KernelState& state) {
  if (!state.cublas_workspace_config.empty()) {
    if (const auto bytes = parse_config(state.cublas_workspace_config)) return *bytes;
  }
  const bool large = (gpu.major == 9 || gpu.major == 10) && gpu.minor == 0;
  return large ? kKiB * 4096 * 8 : kKiB * 4096 * 2 + kKiB * 16 * 8;
}

std::int64_t cublaslt_workspace(const DeviceProfile& /*gpu*/, const KernelState& state) {
  return number(state.cublaslt_workspace_size).value_or(kKiB) * kKiB;
}

void use_cublas(RuleContext& op) {
  op.program.workspace("cublas", cublas_workspace(op.gpu, op.state),
                       WorkspaceScope::kThreadAndStream);
}

void use_cublaslt(RuleContext& op) {
  if (op.state.unified_workspace.value_or(false)) return;
  op.program.workspace("cublaslt", cublaslt_workspace(op.gpu, op.state),
                       WorkspaceScope::kThreadAndStream);
}

}  // namespace peakline::kernels
