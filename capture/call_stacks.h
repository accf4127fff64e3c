// From where in the program something is done, as the recording's words.
#pragma once

#include <string>

#include <peakline/ids.h>

#include "capture/recorder.h"

namespace peakline::capture {

// Lines of torch and of Python itself are folded: those between two lines of the program are left
// out, and of those at the end the innermost stays.
struct TakenStack {
  StackId stack;  // none: nobody reads this thread's calls
  StackId own;    // without the library's line at its end
};

// The stack of the calling thread. Needs no lock of Python's, and may be called under an allocator's.
// A stack that was met before costs some ten nanoseconds and two for each call in it.
TakenStack take_stack(Recorder& recorder) noexcept;

// Of an allocation of so many bytes; none when such ones are recorded without.
inline TakenStack take_stack_of(Recorder& recorder, std::uint64_t bytes) noexcept {
  return bytes < recorder.stacks().from_bytes ? TakenStack{} : take_stack(recorder);
}

inline RawEvent stack_event(const TakenStack& taken, RawKind kind = RawKind::kStack) noexcept {
  return {.size = taken.own.raw(), .id = taken.stack.raw(), .kind = kind};
}

// Whether nobody who reads the program's lines wrote this file: it is of torch or of Python itself, or
// was generated while the program ran.
bool is_library_file(const StackOptions& options, const std::string& file);

// Writes `event`, an allocation that failed, with the stack that asked for it.
void push_failure(Recorder& recorder, const RawEvent& event) noexcept;

}  // namespace peakline::capture
