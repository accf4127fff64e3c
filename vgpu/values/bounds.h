// Between which numbers the elements of a tensor lie, and what a program is told that asks for them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

namespace peakline::vgpu {

struct Range {
  double low = 0;
  double high = 0;
};

// The finite numbers of a type: a healthy run has no others, but those that the program wrote.
Range limits_of(c10::ScalarType dtype);

// Numbers that can be compared, all of them exactly in double.
bool has_bounds(c10::ScalarType dtype);

// What a program is told about an unknown number in `range`, by the session's policy.
double guess_in(c10::ScalarType dtype, Range range);

// An interval for each element, and a number in it that stands for the unknown one: `guess`. An
// element is known where `low` equals `high`. All three are of type double (bools are 0 and 1), and
// have either one entry for each element or no dimension: the same for all.
struct Bounds {
  at::Tensor low;
  at::Tensor guess;
  at::Tensor high;

  [[nodiscard]] bool is_uniform() const { return low.dim() == 0; }
  [[nodiscard]] bool is_fixed() const;  // every element is known
  [[nodiscard]] bool is_within(Range range) const;

  template <class Function>
  [[nodiscard]] Bounds map(Function&& function) const {
    if (low.is_same(high)) {
      const at::Tensor all = function(low);
      return {all, all, all};
    }
    return {function(low), function(guess), function(high)};
  }
};

Bounds uniform_bounds(c10::ScalarType dtype, Range range);
// Nothing is known but the type.
inline Bounds unknown_bounds(c10::ScalarType dtype) {
  return uniform_bounds(dtype, limits_of(dtype));
}
// Every element is known.
Bounds fixed_bounds(const at::Tensor& values);

// One interval around all of it.
Bounds hull(const Bounds& bounds, c10::ScalarType dtype);
Bounds hull(const Bounds& one, const Bounds& other, c10::ScalarType dtype);

// The same after being stored as `dtype`: rounded, and unknown elements finite.
Bounds fit(const Bounds& bounds, c10::ScalarType dtype);

// The same after a conversion from `from` to `to`, which cuts fractions and makes bools of numbers.
Bounds convert(const Bounds& bounds, c10::ScalarType from, c10::ScalarType to);

}  // namespace peakline::vgpu
