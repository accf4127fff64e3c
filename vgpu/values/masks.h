// What is known of masks beside their elements, because of how they came about:
// how many can be nonzero (`mask[places] = True` sets as many as there are places, wherever they
// are), and which numbers count their elements.
#pragma once

#include <cstdint>
#include <optional>

#include "vgpu/call.h"
#include "vgpu/values/computation.h"

namespace peakline::vgpu {

// To be told of every op that is followed to bounds; `result` is its only one.
void note_mask(const Call& call, const Computation& computation, const ValuePtr& result);

// How many elements can be nonzero at most; nothing where no history tells.
std::optional<std::int64_t> most_nonzero(const at::Tensor& tensor);

// The value counts elements of a mask, and is no number that was made up.
bool is_count(const ValuePtr& value);

}  // namespace peakline::vgpu
