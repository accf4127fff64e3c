// The calls of C++ that a thread is in, below the Python that made them.
#pragma once

#include <cstddef>
#include <span>

#include "capture/frames.h"

namespace peakline::capture {

// Fills `calls` with the addresses of this thread's calls, the innermost first, and says how many. The
// first use takes memory, so it must not be under an allocator's lock: `prepare_native_frames()` is it.
std::size_t read_native_frames(std::span<void*> calls) noexcept;
void prepare_native_frames() noexcept;

// A function and the library that it is in, as far as the library exports its name; a library's lines
// are not known.
FramePlace native_place_of(void* call);

// Whether this is the interpreter running a function of Python's: what lies beyond is Python's to tell.
bool runs_python(const FramePlace& place) noexcept;
// Whether this is a function of Python's own, on the way to one that was called.
bool is_of_python(const FramePlace& place) noexcept;

}  // namespace peakline::capture
