#include "vgpu/values/equality.h"

#include <ATen/ATen.h>

namespace peakline::vgpu {
namespace {

// Pairs that are compared one by one; of more, the set is taken as one interval.
constexpr std::int64_t kPairs = 1 << 22;

at::Tensor at_an_end(const Bounds& bounds) {
  return bounds.guess.eq(bounds.low).logical_or(bounds.guess.eq(bounds.high));
}

at::Tensor one_of_two(const Bounds& bounds) {
  return (bounds.high - bounds.low).eq(1).logical_and(at_an_end(bounds));
}

// A whole number at an end of its interval that nobody would have made up for that interval.
at::Tensor is_calculated(const Compared& one) {
  if (!at::isIntegralType(one.dtype, false)) return at::zeros({}, at::kBool);
  if (one.is_count) return at::ones({}, at::kBool);
  const double usual = guess_in(one.dtype, limits_of(one.dtype));
  const at::Tensor made_up = at::minimum(one.bounds.low.clamp_min(usual), one.bounds.high);
  return at_an_end(one.bounds).logical_and(one.bounds.guess.ne(made_up));
}

// Its stand-in is as good as the number itself.
at::Tensor decides(const Compared& one) {
  const at::Tensor known = one.bounds.low.eq(one.bounds.high);
  return known.logical_or(one_of_two(one.bounds)).logical_or(is_calculated(one));
}

Compared unsqueezed(const Compared& one) {
  const auto map = [](const at::Tensor& numbers) { return numbers.unsqueeze(-1); };
  return {one.bounds.map(map), one.dtype, one.is_count};
}

Compared in_a_row(const Compared& set, std::int64_t others) {
  if (set.bounds.low.numel() * others > kPairs) return {hull(set.bounds, set.dtype), set.dtype};
  const auto map = [](const at::Tensor& numbers) { return numbers.reshape({-1}); };
  return {set.bounds.map(map), set.dtype};
}

}  // namespace

Bounds are_equal(const Compared& one, const Compared& other) {
  const Bounds& a = one.bounds;
  const Bounds& b = other.bounds;
  const at::Tensor fixed = a.low.eq(a.high).logical_and(b.low.eq(b.high));
  const at::Tensor must = fixed.logical_and(a.low.eq(b.low));
  const at::Tensor may = a.low.le(b.high).logical_and(b.low.le(a.high));
  const at::Tensor decided = decides(one).logical_and(decides(other));
  const at::Tensor guess =
      must.logical_or(decided.logical_and(a.guess.eq(b.guess)).logical_and(may));
  return Bounds{must, guess, may}.map([](const at::Tensor& t) { return t.to(at::kDouble); });
}

Bounds are_among(const Compared& one, const Compared& set) {
  if (set.bounds.low.numel() == 0) return fixed_bounds(at::zeros_like(one.bounds.low));
  const Compared row = in_a_row(set, one.bounds.low.numel());
  const Bounds each = are_equal(unsqueezed(one), row);
  return each.map([](const at::Tensor& bools) { return bools.amax(-1); });
}

Bounds negated(const Bounds& bools) {
  const auto opposite = [](const at::Tensor& numbers) { return 1 - numbers; };
  return {opposite(bools.high), opposite(bools.guess), opposite(bools.low)};
}

}  // namespace peakline::vgpu
