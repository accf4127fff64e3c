// Page-locked host memory: ordinary memory that remembers having been asked for as pinned.
#pragma once

#include <c10/core/Allocator.h>

namespace peakline::vgpu {

c10::Allocator& pinned_allocator();
bool is_pinned(const void* data);

}  // namespace peakline::vgpu
