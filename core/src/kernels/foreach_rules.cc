// Operators over lists of tensors. Sources: aten/src/ATen/native/cuda/ForeachReduceOp.cu,
// MultiTensorApply.cuh. Their tables of addresses travel as kernel arguments, so most allocate
// nothing but results.
#include <algorithm>

#include "kernels/rule_tables.h"

namespace peakline::kernels {
namespace {

constexpr std::int64_t kChunk = 65536;

// Each tensor's chunks leave a number each in one table, which a second kernel adds up.
void norm(RuleContext& op) {
  const std::vector<TensorMeta>& tensors = op.args.tensors(0);
  if (tensors.empty()) return;
  std::int64_t chunks = 0;
  for (const TensorMeta& t : tensors) chunks = std::max(chunks, (t.numel() + kChunk - 1) / kChunk);
  const DType dtype = accumulate_type(tensors.front().dtype);
  const auto count = static_cast<std::int64_t>(tensors.size());
  const Scratch partial(op.program, count * chunks * size_of(dtype));
  op.program.outputs();
}

constexpr NamedRule kRules[] = {
    {"aten::_foreach_norm", norm},
    {"aten::_foreach_max", norm},
};

}  // namespace

std::span<const NamedRule> foreach_rules() { return kRules; }

}  // namespace peakline::kernels
