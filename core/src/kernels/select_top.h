// The largest elements of slices, as torch.topk finds them.
#pragma once

#include <cstdint>

#include "kernels/program_builder.h"

namespace peakline::kernels {

// Scratch of the search in `slices` slices of `length` elements of this size: some where several
// blocks share a slice, else none.
void select_top(ProgramBuilder& program, std::int64_t slices, std::int64_t length,
                std::int64_t element, const DeviceProfile& gpu);

}  // namespace peakline::kernels
