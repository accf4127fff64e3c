// The lines of Python that a thread is executing, read without Python's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace peakline::capture {

// One call that has not returned. Holds as long as the call does, on its own thread only.
struct PythonFrame {
  const void* code = nullptr;    // a PyCodeObject
  std::int32_t instruction = 0;  // offset in bytes of the one that is being executed
  // Tells it from every other place in the program: Python may use a code object's memory again, but
  // hardly with the same tables at the same addresses.
  std::uint64_t key = 0;
};

// Where that is, in words.
struct PythonPlace {
  std::string file;
  std::string function;
  std::uint32_t line = 0;
};

// Fills `frames` with the calls of this thread, the innermost first, and says how many; more than fit
// are left out. 0 on a thread that Python does not know.
// A thread may always look at its own calls: torch's ops give Python's lock back while they run, but
// what called them waits for them and stays as it is. An allocator's lock may be held.
std::size_t read_python_frames(std::span<PythonFrame> frames) noexcept;

PythonPlace place_of(const PythonFrame& frame);

}  // namespace peakline::capture
