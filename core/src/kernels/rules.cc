#include "kernels/rules.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "kernels/rule_tables.h"

namespace peakline::kernels {
namespace {

using Table = std::unordered_map<std::string_view, Rule>;

Table join() {
  Table all;
  for (const auto& table : {attention_rules(), blas_rules(), convolution_rules(), embedding_rules(),
                            foreach_rules(), indexing_rules(), loss_rules(), normalization_rules(),
                            reduction_rules(), rnn_rules(), sampling_rules(), sort_rules()}) {
    for (const NamedRule& entry : table) all.emplace(entry.name, entry.rule);
  }
  return all;
}

// Libraries without a rule: their workspaces are not known, and results stand for the whole.
bool unknown_library(std::string_view name) {
  constexpr std::string_view kBeginnings[] = {
      "aten::linalg_", "aten::_linalg_", "aten::_fft_",      "aten::cholesky", "aten::geqrf",
      "aten::ormqr",   "aten::_sparse_", "aten::_cudnn_ctc", "aten::sparse_",  "aten::lu_",
  };
  return std::any_of(std::begin(kBeginnings), std::end(kBeginnings),
                     [name](std::string_view start) { return name.starts_with(start); });
}

void outputs_alone(ProgramBuilder& program, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) program.output_of(i, -1, Certainty::kGuessed);
}

}  // namespace

Rule find_rule(std::string_view name) {
  static const Table table = join();
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace peakline::kernels

namespace peakline {

AllocationProgram allocation_program(const OpCall& call, const DeviceProfile& gpu,
                                     const KernelState& state) {
  kernels::ProgramBuilder program(call);
  if (const kernels::Rule rule = kernels::find_rule(call.name)) {
    kernels::RuleContext context{call, gpu, state, kernels::OpArgs(call), program};
    rule(context);
  } else if (kernels::unknown_library(call.name)) {
    kernels::outputs_alone(program, call.outputs.size());
  }
  return program.finish();
}

}  // namespace peakline
