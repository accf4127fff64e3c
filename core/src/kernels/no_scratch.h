// Operators that are known to need no memory but their results.
#pragma once

#include <peakline/kernel_memory.h>

namespace peakline::kernels {

// For ops without a rule. What torch declares as a loop over elements or as a view is known by that
// (OpCall::elementwise); the others are listed, as read in torch's sources.
bool needs_no_scratch(const OpCall& call);

}  // namespace peakline::kernels
