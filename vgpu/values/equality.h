// What is known of `==` and of `isin` where the numbers are not known.
#pragma once

#include <c10/core/ScalarType.h>

#include "vgpu/values/bounds.h"

namespace peakline::vgpu {

// Numbers, and the type in which the program holds them.
struct Compared {
  Bounds bounds;
  c10::ScalarType dtype = c10::kDouble;
  bool is_count = false;  // of a mask's elements
};

// Whether numbers are equal, as bounds of a bool.
//
// They are where they must be, and are taken to be different where they need not. A stand-in decides
// where it is more than a number that was made up: where one of two numbers is meant (at an end of 0
// to 1), and where it was calculated from other stand-ins: how many of a mask are True.
Bounds are_equal(const Compared& one, const Compared& other);

// For each number of `one`, whether it is among the numbers of `set`.
Bounds are_among(const Compared& one, const Compared& set);

// The opposite.
Bounds negated(const Bounds& bools);

}  // namespace peakline::vgpu
