// The words by which the shape cache knows a call.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "vgpu/call.h"

namespace peakline::vgpu {

// Writes the key of `call` into `words`. False when an argument has no such words (a custom class,
// a storage), so the call cannot be cached.
bool make_key(const Call& call, std::vector<std::uint64_t>& words);

}  // namespace peakline::vgpu
