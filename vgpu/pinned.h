// Page-locked host memory: ordinary memory that remembers having been asked for as pinned.
#pragma once

#include <c10/core/Allocator.h>

namespace peakline::vgpu {

c10::Allocator& pinned_allocator();
bool is_pinned(const void* data);

// Memory that somebody else made, to count as pinned until it is forgotten.
void note_pinned(const void* data, std::size_t bytes);
void forget_pinned(const void* data) noexcept;

// The most that was pinned at a time since the last reset.
std::size_t pinned_peak();
void reset_pinned_peak();

}  // namespace peakline::vgpu
