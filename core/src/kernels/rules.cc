#include "kernels/rules.h"

#include <unordered_map>

#include "kernels/no_scratch.h"
#include "kernels/rule_tables.h"

namespace peakline::kernels {
namespace {

using Table = std::unordered_map<std::string_view, Rule>;

Table join() {
  Table all;
  for (const auto& table :
       {attention_rules(), blas_rules(), convolution_rules(), embedding_rules(), foreach_rules(),
        indexing_rules(), loss_rules(), normalization_rules(), reduction_rules(), rnn_rules(),
        sampling_rules(), sort_rules(), sparse_rules()}) {
    for (const NamedRule& entry : table) all.emplace(entry.name, entry.rule);
  }
  return all;
}

}  // namespace

Rule find_rule(std::string_view name) {
  static const Table table = join();
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace peakline::kernels

namespace peakline {

bool has_kernel_rule(std::string_view op) { return kernels::find_rule(op) != nullptr; }

AllocationProgram allocation_program(const OpCall& call, const DeviceProfile& gpu,
                                     const KernelState& state) {
  kernels::ProgramBuilder program(call);
  if (const kernels::Rule rule = kernels::find_rule(call.name)) {
    if (!gpu.measured_with_torch(state.torch)) program.scratch_at_best(Certainty::kModelled);
    kernels::RuleContext context{call, gpu, state, kernels::OpArgs(call), program};
    rule(context);
  } else if (!kernels::needs_no_scratch(call) && !kernels::copies_inputs(call, program)) {
    program.outputs(Certainty::kOutputsOnly);
  }
  return program.finish();
}

}  // namespace peakline
