// The time of a kernel that a compiler wrote, or the program: no rule knows what it computes.
#pragma once

#include <peakline/cost.h>

namespace peakline {

// By the bytes that it reads and writes, at the rate of an elementwise kernel: a guess, and too short
// where it does much arithmetic. The host launches it without an op of torch's.
OpTime generated_kernel_time(double bytes, const DeviceProfile& gpu);

}  // namespace peakline
