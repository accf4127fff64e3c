// Scratch memory of sparse tensors' ops: what they call has allocated the rest by itself. Source:
// aten/src/ATen/native/sparse/cuda/SparseCUDATensor.cu.
#include "kernels/cub.h"
#include "kernels/rule_tables.h"

namespace peakline::kernels {
namespace {

// _coalesce(elements): places are sorted with their order, and the first of equal ones stay.
void coalesce(RuleContext& op) {
  constexpr std::int64_t kIndex = 8;
  const std::int64_t n = op.args.integer(0);
  op.program.flash(cub::merge_sort(n, kIndex, kIndex), Certainty::kModelled);
  op.program.flash(cub::select(n), Certainty::kModelled);
}

constexpr NamedRule kRules[] = {
    {"aten::_coalesce", coalesce},
};

}  // namespace

std::span<const NamedRule> sparse_rules() { return kRules; }

}  // namespace peakline::kernels
