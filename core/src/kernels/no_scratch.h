// Operators that are known to need no memory but their results, and copies of inputs that are not dense.
#pragma once

#include <peakline/kernel_memory.h>

#include "kernels/program_builder.h"

namespace peakline::kernels {

// For ops without a rule. What torch declares as a loop over elements or as a view is known by that
// (OpCall::elementwise); the others are listed, as read in torch's sources.
bool needs_no_scratch(const OpCall& call);

// Whether the op's kernel copies inputs that are not dense, and needs nothing else. `program` then has
// its outputs and those copies: structured ops make their outputs first.
bool copies_inputs(const OpCall& call, ProgramBuilder& program);

}  // namespace peakline::kernels
