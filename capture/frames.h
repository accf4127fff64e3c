// The calls that a thread is in, as whoever can read the program's language tells them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace peakline::capture {

// One call that has not returned. Holds as long as the call does, on its own thread only.
struct Frame {
  const void* code = nullptr;    // Python's: a PyCodeObject
  std::int32_t instruction = 0;  // offset in bytes of the one that is being executed
  std::uint64_t key = 0;         // tells it from every other place in the program
};

// Where that is, in words.
struct FramePlace {
  std::string file;
  std::string function;
  std::uint32_t line = 0;
};

struct FrameReader {
  // Fills `frames` with the calls of this thread, the innermost first, and says how many; more than
  // fit are left out. An allocator's lock may be held.
  std::size_t (*read)(std::span<Frame> frames) noexcept;
  FramePlace (*place_of)(const Frame& frame);
};

// Without one, as in a C++ program, there are no stacks. `reader` lives for ever.
void set_frame_reader(const FrameReader* reader) noexcept;

}  // namespace peakline::capture
