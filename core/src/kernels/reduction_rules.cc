// Operators that run torch's reduction kernel. Sources: aten/src/ATen/native/cuda/Reduce*.cu,
// aten/src/ATen/native/ReduceOps.cpp, ReduceOpsUtils.h.
#include <algorithm>

#include "kernels/reduce_config.h"
#include "kernels/rule_tables.h"

namespace peakline::kernels {
namespace {

constexpr std::int64_t kMean = 1;  // at::Reduction

// A reduction over a tensor that the op makes itself, or of an argument.
Reduction reduction_of(const TensorMeta& input, const TensorMeta& output,
                       std::int64_t accumulator) {
  Reduction r;
  r.input = input;
  r.accumulator_size = accumulator;
  r.output_size = std::max<std::int64_t>(1, size_of(output.dtype));
  r.accumulates_in_output = !(is_reduced_float(input.dtype) && is_reduced_float(output.dtype));
  return r;
}

// The dimensions an op was given: a list, one number, or nothing.
std::vector<std::int64_t> dims_of(const OpArgs& args, std::size_t index) {
  if (!args.integers(index).empty()) return args.integers(index);
  if (args.given(index) && args.integers(index).empty()) {
    const std::int64_t one = args.integer(index, INT64_MIN);
    if (one != INT64_MIN) return {one};
  }
  return {};
}

TensorMeta dense(TensorMeta tensor, DType dtype) {
  tensor.dtype = dtype;
  tensor.storage_offset = 0;
  std::int64_t stride = 1;
  tensor.strides.assign(tensor.sizes.size(), 1);
  for (std::size_t i = tensor.sizes.size(); i-- > 0;) {
    tensor.strides[i] = stride;
    stride *= tensor.sizes[i];
  }
  return tensor;
}

// Inputs of another type than the result are converted first, except half precision to float,
// which the kernel does itself.
void with_cast(RuleContext& op, std::vector<std::int64_t> dims, std::int64_t accumulator,
               int reduced_vector) {
  TensorMeta input = op.args.tensor(0);
  const TensorMeta& output = op.args.out(0);
  op.program.outputs();
  const bool in_kernel = is_reduced_float(input.dtype) && output.dtype == DType::kFloat32;
  const bool cast = input.dtype != output.dtype && !in_kernel;
  const Scratch converted(op.program, cast ? input.numel() * size_of(output.dtype) : 0);
  if (cast) input.dtype = output.dtype;
  Reduction r = reduction_of(input, output, accumulator);
  r.dims = std::move(dims);
  if (size_of(input.dtype) == 2) r.input_vector = reduced_vector;
  reduce(op.program, r, op.gpu);
}

std::int64_t sum_accumulator(const OpArgs& args) {
  return size_of(accumulate_type(args.out(0).dtype));
}

bool has_dims(const OpCall& call) {
  return call.overload.find("dim") != std::string_view::npos ||
         call.overload.find("IntList") != std::string_view::npos ||
         call.overload.find("correction") != std::string_view::npos;
}

void sum(RuleContext& op) {
  const bool dims = has_dims(op.call);
  with_cast(op, dims ? dims_of(op.args, 1) : std::vector<std::int64_t>{}, sum_accumulator(op.args),
            8);
}

void mean(RuleContext& op) {
  const bool dims = has_dims(op.call);
  with_cast(op, dims ? dims_of(op.args, 1) : std::vector<std::int64_t>{}, sum_accumulator(op.args),
            4);
}

void vector_norm(RuleContext& op) {
  with_cast(op, dims_of(op.args, 2), sum_accumulator(op.args), 4);
}

// amax, amin: compared in the tensor's own type.
void extreme(RuleContext& op) {
  op.program.outputs();
  Reduction r = reduction_of(op.args.tensor(0), op.args.out(0), size_of(op.args.out(0).dtype));
  r.dims = dims_of(op.args, 1);
  reduce(op.program, r, op.gpu);
}

// A value and its position travel together.
void extreme_with_index(RuleContext& op, std::vector<std::int64_t> dims) {
  op.program.outputs();
  const DType dtype = op.args.tensor(0).dtype;
  Reduction r = reduction_of(op.args.tensor(0), op.args.out(0), size_of(dtype) > 8 ? 24 : 16);
  r.dims = std::move(dims);
  r.accumulates_in_output = false;
  reduce(op.program, r, op.gpu);
}

void max(RuleContext& op) {
  if (op.call.overload == "other" || op.call.overload == "out") return op.program.outputs();
  if (has_dims(op.call)) return extreme_with_index(op, {op.args.integer(1)});
  op.program.outputs();
  reduce(op.program, reduction_of(op.args.tensor(0), op.args.out(0), size_of(op.args.out(0).dtype)),
         op.gpu);
}

void argmax(RuleContext& op) { extreme_with_index(op, dims_of(op.args, 1)); }

// Welford's algorithm carries mean, squares and two counts.
void variance(RuleContext& op) {
  op.program.outputs();
  const std::int64_t real = size_of(accumulate_type(op.args.tensor(0).dtype));
  Reduction r = reduction_of(op.args.tensor(0), op.args.out(0), real == 8 ? 32 : 16);
  r.dims = dims_of(op.args, 1);
  r.unroll = 2;
  r.accumulates_in_output = false;
  reduce(op.program, r, op.gpu);
}

void truth(RuleContext& op) {
  op.program.outputs();
  Reduction r = reduction_of(op.args.tensor(0), op.args.out(0), size_of(op.args.tensor(0).dtype));
  r.dims = has_dims(op.call) ? dims_of(op.args, 1) : std::vector<std::int64_t>{};
  reduce(op.program, r, op.gpu);
}

void count_nonzero(RuleContext& op) {
  const TensorMeta& input = op.args.tensor(0);
  const Scratch compared(op.program, input.numel());
  op.program.outputs();
  const Scratch converted(op.program, input.numel() * 8);
  Reduction r = reduction_of(dense(input, DType::kInt64), op.args.out(0), 8);
  r.dims = dims_of(op.args, 1);
  reduce(op.program, r, op.gpu);
}

// max, shifted exponentials, their sum.
void logsumexp(RuleContext& op) {
  const TensorMeta& input = op.args.tensor(0);
  const std::int64_t result = op.args.out(0).bytes().raw();
  Reduction r = reduction_of(input, op.args.out(0), size_of(input.dtype));
  r.dims = dims_of(op.args, 1);
  const Scratch maxima(op.program, result);
  reduce(op.program, r, op.gpu);
  {
    const Scratch absolute(op.program, result);
    op.program.flash(op.args.out(0).numel());
  }
  const Scratch shifted(op.program, input.bytes().raw());
  op.program.outputs();
  r.input = dense(input, input.dtype);
  r.accumulator_size = size_of(accumulate_type(input.dtype));
  reduce(op.program, r, op.gpu);
}

// Losses that make the elementwise loss first and reduce it then.
void pointwise_loss(RuleContext& op, std::size_t reduction_argument) {
  op.program.outputs();
  const TensorMeta& input = op.args.tensor(0);
  if (op.args.integer(reduction_argument, kMean) == 0) return;
  const Scratch loss(op.program, input.bytes().raw());
  const DType dtype = input.dtype;
  reduce(op.program,
         reduction_of(dense(input, dtype), op.args.out(0), size_of(accumulate_type(dtype))),
         op.gpu);
}
void loss2(RuleContext& op) { pointwise_loss(op, 2); }

void binary_cross_entropy(RuleContext& op) {
  const TensorMeta& input = op.args.tensor(0);
  if (op.args.integer(3, kMean) == 0) return op.program.outputs();
  const Scratch loss(op.program, input.bytes().raw());
  op.program.outputs();
  reduce(op.program,
         reduction_of(dense(input, input.dtype), op.args.out(0),
                      size_of(accumulate_type(input.dtype))),
         op.gpu);
}

// Without a dimension: two extremes are looked at on the host, then the counts are made.
void bincount(RuleContext& op) {
  const TensorMeta& input = op.args.tensor(0);
  TensorMeta scalar;
  scalar.dtype = input.dtype;
  for (int i = 0; i < 2; ++i) {
    const Scratch extreme(op.program, size_of(input.dtype));
    reduce(op.program, reduction_of(input, scalar, size_of(input.dtype)), op.gpu);
  }
  op.program.outputs();
}

void histc(RuleContext& op) {
  const TensorMeta& input = op.args.tensor(0);
  op.program.outputs();
  TensorMeta scalar;
  scalar.dtype = input.dtype;
  if (op.args.real(2) != op.args.real(3)) return;
  for (int i = 0; i < 2; ++i) {
    const Scratch extreme(op.program, size_of(input.dtype));
    reduce(op.program, reduction_of(input, scalar, size_of(input.dtype)), op.gpu);
  }
}

constexpr NamedRule kRules[] = {
    {"aten::sum", sum},
    {"aten::nansum", sum},
    {"aten::prod", mean},
    {"aten::mean", mean},
    {"aten::linalg_vector_norm", vector_norm},
    {"aten::norm", vector_norm},
    {"aten::amax", extreme},
    {"aten::amin", extreme},
    {"aten::max", max},
    {"aten::min", max},
    {"aten::argmax", argmax},
    {"aten::argmin", argmax},
    {"aten::var", variance},
    {"aten::std", variance},
    {"aten::var_mean", variance},
    {"aten::std_mean", variance},
    {"aten::any", truth},
    {"aten::all", truth},
    {"aten::count_nonzero", count_nonzero},
    {"aten::logsumexp", logsumexp},
    {"aten::mse_loss", loss2},
    {"aten::smooth_l1_loss", loss2},
    {"aten::huber_loss", loss2},
    {"aten::binary_cross_entropy", binary_cross_entropy},
    {"aten::bincount", bincount},
    {"aten::histc", histc},
};

}  // namespace

std::span<const NamedRule> reduction_rules() { return kRules; }

}  // namespace peakline::kernels
