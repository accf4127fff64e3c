// Matrix products. Sources: aten/src/ATen/native/cuda/Blas.cpp, aten/src/ATen/cuda/CublasHandlePool.cpp.
#include "kernels/blas.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "kernels/rule_tables.h"

namespace peakline::kernels {
namespace {

constexpr std::int64_t kKiB = 1024;

// The digits at the beginning of `text`, which are taken off; nothing when there are none, or more
// than a size can have.
std::optional<std::int64_t> take_number(std::string_view& text) {
  constexpr std::int64_t kMost = std::int64_t{1} << 26;  // KiB: 64 GiB
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0 || value > kMost) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

// ":4096:2:16:8" is two blocks of 4096 KiB and eight of 16 KiB. As torch does, every ":size:count"
// in the text is taken, and what stands between them is passed over.
std::optional<std::int64_t> parse_config(std::string_view text) {
  std::optional<std::int64_t> total;
  while (true) {
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos) return total;
    text.remove_prefix(colon + 1);
    std::string_view rest = text;
    const auto size = take_number(rest);
    if (!size || !rest.starts_with(':')) continue;
    rest.remove_prefix(1);
    const auto count = take_number(rest);
    if (!count) continue;
    total = total.value_or(0) + *size * *count * kKiB;
    text = rest;
  }
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
  if (op.args.out(0).numel() == 0) return;
  use_cublas(op);
  if (op.state.switches.prefers_cublaslt) use_cublaslt(op);
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
  const bool in_epilogue = bias_in_epilogue(op.args.tensor(0), b, op.args);
  if (in_epilogue || op.state.switches.prefers_cublaslt) use_cublaslt(op);
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

// In bfloat16 one kernel for all groups where the GPU has it; otherwise one product after another.
void grouped_mm(RuleContext& op) {
  op.program.outputs();
  const bool has_kernel = (op.gpu.major == 9 || op.gpu.major == 10) && op.gpu.minor == 0;
  if (has_kernel && op.args.tensor(0).dtype == DType::kBFloat16) return;
  if (op.args.out(0).numel() > 0) use_cublas(op);
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
    {"aten::_grouped_mm", grouped_mm},
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

namespace {

BlasWorkspaces workspaces(const RuleContext& op) {
  return op.state.blas ? *op.state.blas : blas_workspaces(op.gpu);
}

}  // namespace

void use_cublas(RuleContext& op) {
  op.program.workspace("cublas", workspaces(op).cublas.raw(), WorkspaceScope::kThreadAndStream);
}

void use_cublaslt(RuleContext& op) {
  const BlasWorkspaces found = workspaces(op);
  if (found.unified) return;
  op.program.workspace("cublaslt", found.cublaslt.raw(), WorkspaceScope::kThreadAndStream);
}

}  // namespace peakline::kernels

namespace peakline {

// CublasHandlePool.cpp: 32 MiB for sm90 and sm100, two blocks of 4 MiB and eight of 16 KiB elsewhere.
BlasWorkspaces blas_workspaces(const DeviceProfile& gpu, const BlasEnvironment& environment) {
  using kernels::kKiB;
  const bool large = (gpu.major == 9 || gpu.major == 10) && gpu.minor == 0;
  const std::int64_t usual = large ? kKiB * 4096 * 8 : kKiB * 4096 * 2 + kKiB * 16 * 8;
  std::string_view lt = environment.cublaslt_kib;
  BlasWorkspaces found;
  found.cublas = Bytes(kernels::parse_config(environment.cublas_config).value_or(usual));
  found.cublaslt = Bytes(kernels::take_number(lt).value_or(kKiB) * kKiB);
  found.unified = environment.unified == "1";
  return found;
}

}  // namespace peakline
