// The lines of Python that a thread is executing, read without Python's lock.
#pragma once

#include "capture/frames.h"

namespace peakline::capture {

// From here on stacks are those of Python. A thread that Python does not know has none.
// A thread may always look at its own calls: torch's ops give Python's lock back while they run, but
// what called them waits for them and stays as it is.
void know_python_frames() noexcept;

}  // namespace peakline::capture
