// Operators and the rules that know what they allocate.
#pragma once

#include <string_view>

#include <peakline/kernel_memory.h>

#include "kernels/op_args.h"
#include "kernels/program_builder.h"

namespace peakline::kernels {

// What a rule may look at, and where it writes.
struct RuleContext {
  const OpCall& call;
  const DeviceProfile& gpu;
  const KernelState& state;
  OpArgs args;
  ProgramBuilder& program;
};

using Rule = void (*)(RuleContext&);

struct NamedRule {
  std::string_view name;  // "aten::mm"
  Rule rule;
};

// The rule for an operator, or nullptr.
Rule find_rule(std::string_view name);

}  // namespace peakline::kernels
