// Losses with buffers of their own. Source: aten/src/ATen/native/cuda/LossCTC.cu.
#include "kernels/rule_tables.h"

namespace peakline::kernels {
namespace {

// Lengths and offsets of the batch, on the GPU while the kernels run.
constexpr std::int64_t kNumbersPerSequence = 3;

void ctc(RuleContext& op) {
  const TensorMeta& probabilities = op.args.tensor(0);
  if (probabilities.sizes.size() < 2) return;
  const Scratch numbers(op.program, kNumbersPerSequence * 8 * probabilities.sizes[1]);
  op.program.output(1);
  op.program.output(0);
}

// The sums from the end, as large as those from the start that forward kept.
void ctc_backward(RuleContext& op) {
  op.program.output(0);
  const TensorMeta& kept = op.args.tensor(6);
  const std::int64_t batch = kept.sizes.empty() ? 1 : kept.sizes[0];
  const Scratch from_the_end(op.program, kept.bytes().raw());
  const Scratch numbers(op.program, kNumbersPerSequence * 8 * batch);
}

constexpr NamedRule kRules[] = {
    {"aten::_ctc_loss", ctc},
    {"aten::_ctc_loss_backward", ctc_backward},
};

}  // namespace

std::span<const NamedRule> loss_rules() { return kRules; }

}  // namespace peakline::kernels
