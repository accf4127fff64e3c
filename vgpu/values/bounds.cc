#include "vgpu/values/bounds.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "vgpu/engine.h"

namespace peakline::vgpu {
namespace {

// Whole numbers that doubles count exactly enough, and that can be added without wrapping around.
constexpr double kLargestLong = 4.6e18;
constexpr double kLargestDouble = 1e300;

at::Tensor number(double value) { return at::scalar_tensor(value, at::kDouble); }

double item(const at::Tensor& tensor) { return tensor.item<double>(); }

template <class T>
Range whole_limits() {
  return {static_cast<double>(std::numeric_limits<T>::min()),
          static_cast<double>(std::numeric_limits<T>::max())};
}

bool is_inside(double value, Range range) { return range.low < value && value < range.high; }

// A loss falls with every step of a healthy run, by little. The usual number has fallen once before
// the first: what is compared with one, as an error is with its tolerance, lies within it.
double falling(double start, std::uint64_t steps) {
  constexpr double kPerStep = 1.0 / (1 << 20);
  const std::uint64_t falls = start == ValuePolicy{}.number ? steps + 1 : steps;
  return start * std::max(0.5, 1.0 - static_cast<double>(falls) * kPerStep);
}

double guess_fraction(double start, std::uint64_t steps, Range range, Range limits) {
  const double usual = falling(start, steps);
  const bool has_ends = range.low > limits.low && range.high < limits.high;
  // What has only just fallen below an end is no likely number: chance would rarely pick it.
  if (is_inside(has_ends ? start : usual, range)) return usual;
  if (has_ends) {
    // Zero would hide too much of what is computed from it.
    return range.low < 0 && range.high > 0 ? range.high / 2 : (range.low + range.high) / 2;
  }
  if (is_inside(-usual, range)) return -usual;
  return std::clamp(usual, range.low, range.high);
}

}  // namespace

Range limits_of(c10::ScalarType dtype) {
  const auto around_zero = [](double largest) { return Range{-largest, largest}; };
  switch (dtype) {
    case at::kBool:
      return {0, 1};
    case at::kByte:
      return {0, 255};
    case at::kChar:
      return whole_limits<std::int8_t>();
    case at::kShort:
      return whole_limits<std::int16_t>();
    case at::kInt:
      return whole_limits<std::int32_t>();
    case at::kUInt16:
      return whole_limits<std::uint16_t>();
    case at::kUInt32:
      return whole_limits<std::uint32_t>();
    case at::kUInt64:
      return {0, kLargestLong};
    case at::kLong:
      return around_zero(kLargestLong);
    case at::kHalf:
      return around_zero(65504);
    case at::kBFloat16:
      return around_zero(3.3895313892515355e38);
    case at::kFloat:
      return around_zero(std::numeric_limits<float>::max());
    default:
      return around_zero(kLargestDouble);
  }
}

bool has_bounds(c10::ScalarType dtype) {
  return dtype == at::kBool || at::isIntegralType(dtype, false) || dtype == at::kHalf ||
         dtype == at::kBFloat16 || dtype == at::kFloat || dtype == at::kDouble;
}

double guess_in(c10::ScalarType dtype, Range range) {
  const Engine* engine = current_engine();
  const ValuePolicy policy = engine == nullptr ? ValuePolicy{} : engine->policy();
  if (dtype == at::kBool) {
    return std::clamp(policy.truth.value_or(false) ? 1.0 : 0.0, range.low, range.high);
  }
  if (at::isIntegralType(dtype, false)) {
    return std::clamp(static_cast<double>(policy.whole), range.low, range.high);
  }
  const std::uint64_t steps = engine == nullptr ? 0 : engine->steps();
  return guess_fraction(policy.number, steps, range, limits_of(dtype));
}

bool Bounds::is_fixed() const { return low.is_same(high) || at::equal(low, high); }

bool Bounds::is_within(Range range) const {
  if (low.numel() == 0) return true;
  return item(low.min()) >= range.low && item(high.max()) <= range.high;
}

Bounds uniform_bounds(c10::ScalarType dtype, Range range) {
  if (range.low == range.high) return fixed_bounds(number(range.low));
  return {number(range.low), number(guess_in(dtype, range)), number(range.high)};
}

Bounds fixed_bounds(const at::Tensor& values) {
  const at::Tensor all = values.to(at::kDouble);
  return {all, all, all};
}

Bounds hull(const Bounds& bounds, c10::ScalarType dtype) {
  if (bounds.is_uniform()) return bounds;
  if (bounds.low.numel() == 0) return unknown_bounds(dtype);
  const Range limits = limits_of(dtype);
  const auto or_limit = [](double value, double limit) {
    return std::isnan(value) ? limit : value;
  };
  const Range range{or_limit(item(bounds.low.min()), limits.low),
                    or_limit(item(bounds.high.max()), limits.high)};
  return uniform_bounds(dtype, range);
}

Bounds hull(const Bounds& one, const Bounds& other, c10::ScalarType dtype) {
  const Bounds a = hull(one, dtype);
  const Bounds b = hull(other, dtype);
  const Range range{std::min(item(a.low), item(b.low)), std::max(item(a.high), item(b.high))};
  Bounds both = uniform_bounds(dtype, range);
  // A number that is known stands for itself alone: zeros beside a loss are not the loss.
  if (!both.is_fixed()) both.guess = b.is_fixed() && !a.is_fixed() ? a.guess : b.guess;
  return both;
}

Bounds fit(const Bounds& bounds, c10::ScalarType dtype) {
  const auto rounded = [dtype](const at::Tensor& tensor) {
    return dtype == at::kDouble || dtype == at::kBool || at::isIntegralType(dtype, false)
               ? tensor
               : tensor.to(dtype).to(at::kDouble);
  };
  if (bounds.low.is_same(bounds.high)) return fixed_bounds(rounded(bounds.low));
  const Range limits = limits_of(dtype);
  const at::Tensor fixed = bounds.low.eq(bounds.high);
  const at::Tensor low = at::where(
      fixed, bounds.low, at::nan_to_num(bounds.low, limits.low).clamp(limits.low, limits.high));
  const at::Tensor high = at::where(
      fixed, bounds.high, at::nan_to_num(bounds.high, limits.high).clamp(limits.low, limits.high));
  at::Tensor guess = at::where(bounds.guess.isnan(), low.clamp_min(1.0), bounds.guess);
  guess = at::minimum(at::maximum(guess, low), high);
  return {rounded(low), rounded(guess), rounded(high)};
}

Bounds convert(const Bounds& bounds, c10::ScalarType from, c10::ScalarType to) {
  if (to == at::kBool && from != at::kBool) {
    const at::Tensor may_be_zero = bounds.low.le(0).logical_and(bounds.high.ge(0));
    const at::Tensor is_zero = bounds.low.eq(0).logical_and(bounds.high.eq(0));
    return {may_be_zero.logical_not().to(at::kDouble), bounds.guess.ne(0).to(at::kDouble),
            is_zero.logical_not().to(at::kDouble)};
  }
  if (at::isIntegralType(to, false) && at::isFloatingType(from)) {
    return fit(bounds.map([](const at::Tensor& tensor) { return tensor.trunc(); }), to);
  }
  return fit(bounds, to);
}

}  // namespace peakline::vgpu
