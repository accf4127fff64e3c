// Regions that the program asked torch to compile. They run eagerly on a virtual GPU, so what they
// allocate, forward and backward, is a guess.
#pragma once

namespace peakline::vgpu {

// Around a call of such a region, on the calling thread. They nest.
void enter_compiled_region();
void leave_compiled_region();

// Whether this thread runs one, or the backward pass of one.
bool in_compiled_region() noexcept;

// Of a new session: what earlier ones compiled is of no interest.
void forget_compiled_regions();

}  // namespace peakline::vgpu
