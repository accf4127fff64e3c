// Regions that the program asked torch to compile and that run eagerly: what they
// allocate, forward and backward, is a guess.
#pragma once

#include <peakline/certainty.h>

namespace peakline::vgpu {

// Around a call of such a region, on the calling thread. They nest; the outermost one counts.
// Stand-ins of libraries that are not installed are regions, too: modelled ones.
void enter_compiled_region(Certainty certainty);
void leave_compiled_region();

// How surely this thread's allocations are known by where they happen: in such a region, or in the
// backward pass of one. kExact elsewhere.
Certainty region_certainty() noexcept;

// Of a new session: what earlier ones compiled is of no interest.
void forget_compiled_regions();

}  // namespace peakline::vgpu
