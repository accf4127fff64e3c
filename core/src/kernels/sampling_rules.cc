// Random choices. Sources: aten/src/ATen/native/Distributions.cpp, cuda/MultinomialKernel.cu,
// cuda/Dropout.cu.
#include "kernels/cub.h"
#include "kernels/reduce_config.h"
#include "kernels/rule_tables.h"
#include "kernels/select_top.h"

namespace peakline::kernels {
namespace {

void extreme(ProgramBuilder& program, const TensorMeta& input, const DeviceProfile& gpu) {
  Reduction r;
  r.input = input;
  r.accumulator_size = size_of(input.dtype);
  r.output_size = size_of(input.dtype);
  reduce(program, r, gpu);
}

// Without replacement: the weights are checked, then the largest of weight by exponential noise win.
void multinomial(RuleContext& op) {
  const TensorMeta& weights = op.args.tensor(0);
  op.program.outputs();
  const std::int64_t element = size_of(weights.dtype);
  if (op.args.flag(2)) {  // with replacement: looked up in cumulative sums
    const Scratch copy(op.program, weights.bytes().raw());
    const Scratch sums(op.program, weights.bytes().raw());
    const Scratch samples(op.program, weights.bytes().raw());
    op.program.flash(cub::scan(weights.numel(), element), Certainty::kModelled);
    return;
  }
  for (int i = 0; i < 2; ++i) {
    const Scratch value(op.program, element);
    extreme(op.program, weights, op.gpu);
    op.program.flash(1);
  }
  const Scratch noise(op.program, weights.bytes().raw());
  const std::int64_t length = weights.sizes.empty() ? 1 : weights.sizes.back();
  const std::int64_t slices = length > 0 ? weights.numel() / length : 0;
  const Scratch winners(op.program, slices * op.args.integer(1) * element);
  select_top(op.program, slices, length, element, op.gpu);
}

// The mask is made before the result (Dropout.cu).
void dropout(RuleContext& op) {
  op.program.output(1);
  op.program.output(0);
}

constexpr NamedRule kRules[] = {
    {"aten::native_dropout", dropout},
    {"aten::multinomial", multinomial},
};

}  // namespace

std::span<const NamedRule> sampling_rules() { return kRules; }

}  // namespace peakline::kernels
