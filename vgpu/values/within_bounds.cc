// Runs a remembered op on intervals: at their ends, which for the ops that have a rule is enough to
// know the interval of every result.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "vgpu/values/bounds_run.h"
#include "vgpu/values/equality.h"
#include "vgpu/values/masks.h"

namespace peakline::vgpu {
namespace {

using Kind = ValueRule::Kind;
using Numbers = BoundsRun::Numbers;
using Points = BoundsRun::Points;
using Results = BoundsRun::Results;

// Three unknown operands at three points each.
constexpr std::size_t kVariables = 3;

// What each kind of rule makes of the operands' intervals.
class Rules {
 public:
  explicit Rules(const BoundsRun& run)
      : run_(run),
        computation_(run.computation()),
        rule_(*computation_.rule()),
        operands_(run.operands()),
        views_(run.views()) {}

  [[nodiscard]] Results results() const {
    switch (rule_.kind) {
      case Kind::kNone:
        return {};
      case Kind::kEqual:
      case Kind::kUnequal:
        return compare();
      case Kind::kBits:
        return bits();
      case Kind::kConvert:
        return converted();
      case Kind::kMove:
        return moved();
      case Kind::kReduceAlike:
        return reduced();
      case Kind::kReduceSum:
        return computation_.info().name.text == "aten::count_nonzero" ? counted() : reduced();
      case Kind::kDivide:
        return keeps_sign(divisor()) ? at_corners({Point::kLow, Point::kHigh}) : Results{};
      case Kind::kUnimodal:
        return at_corners({Point::kLow, Point::kZero, Point::kHigh});
      case Kind::kPointwise:
        return at_corners(run_.has_twins() ? Points{Point::kLow, Point::kZero, Point::kHigh}
                                           : Points{Point::kLow, Point::kHigh});
    }
    return {};
  }

 private:
  // Every combination of the variables' points.
  [[nodiscard]] Results at_corners(const Points& points) const {
    if (run_.variables() > kVariables) return {};
    std::size_t combinations = 1;
    for (std::size_t i = 0; i < run_.variables(); ++i) combinations *= points.size();
    Numbers low;
    Numbers high;
    for (std::size_t number = 0; number < combinations; ++number) {
      const Numbers found = run_.call(corner(number, points));
      if (low.empty()) {
        low = high = found;
        continue;
      }
      for (std::size_t i = 0; i < found.size(); ++i) {
        low[i] = at::minimum(low[i], found[i]);
        high[i] = at::maximum(high[i], found[i]);
      }
    }
    Numbers guess = run_.variables() == 0 ? low : run_.call_all(Point::kGuess);
    if (run_.variables() > 1 && is_difference()) {
      for (std::size_t i = 0; i < guess.size(); ++i)
        guess[i] = different(low[i], guess[i], high[i]);
    }
    return run_.stored(low, guess, high);
  }

  [[nodiscard]] bool is_difference() const {
    const std::string& name = computation_.info().name.text;
    return name.starts_with("aten::sub") || name.starts_with("aten::rsub");
  }

  // Two unknown numbers have the same stand-in and are not the same.
  static at::Tensor different(const at::Tensor& low, const at::Tensor& guess,
                              const at::Tensor& high) {
    const at::Tensor hidden = guess.eq(0).logical_and(low.lt(high));
    return at::where(hidden, at::minimum(low.clamp_min(1.0), high), guess);
  }

  [[nodiscard]] Points corner(std::size_t number, const Points& points) const {
    Points chosen(operands_.size(), Point::kLow);
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (run_.variable_of(i) < 0) continue;
      std::size_t digit = number;
      for (int skip = 0; skip < run_.variable_of(i); ++skip) digit /= points.size();
      chosen[i] = points[digit % points.size()];
    }
    return chosen;
  }

  [[nodiscard]] const Bounds& divisor() const {
    for (std::size_t i = operands_.size(); i-- > 0;) {
      if (run_.is_read(i)) return views_[i];
    }
    return views_[0];
  }
  static bool keeps_sign(const Bounds& bounds) {
    return bounds.is_fixed() || bounds.is_within({0, HUGE_VAL}) || bounds.is_within({-HUGE_VAL, 0});
  }

  [[nodiscard]] Results compare() const {
    const bool isin = computation_.info().name.text == "aten::isin";
    const Compared one = argument(0);
    const Compared other = argument(1);
    if (!one.bounds.low.defined() || !other.bounds.low.defined()) return {};
    const bool twins =
        run_.has_twins() && operands_.size() > 1 && run_.variable_of(0) == run_.variable_of(1);
    Bounds equal = twins  ? fixed_bounds(at::ones_like(one.bounds.low))
                   : isin ? are_among(one, other)
                          : are_equal(one, other);
    if (!isin && !twins && run_.elementwise() && are_both_several()) equal.guess = one_holds(equal);
    const bool opposite = isin ? computation_.args()[3].toBool() : rule_.kind == Kind::kUnequal;
    if (opposite) equal = negated(equal);
    return run_.stored({equal.low}, {equal.guess}, {equal.high});
  }

  [[nodiscard]] bool are_both_several() const {
    return operands_.size() > 1 && elements(operands_[0].layout) > 1 &&
           elements(operands_[1].layout) > 1;
  }

  // Of several predictions beside labels a healthy run has one right and the others wrong. It says so
  // for each element: whatever is asked of the mask, the answers are about one mask.
  [[nodiscard]] at::Tensor one_holds(const Bounds& equal) const {
    const auto& sizes = computation_.slots().front().parts.front().layout.sizes;
    const at::Tensor open = equal.low.lt(equal.high).expand(sizes).reshape({-1});
    const at::Tensor may_hold = open.nonzero().reshape({-1});
    at::Tensor guess = equal.guess.expand(sizes).reshape({-1}).clone();
    const bool none_holds = !guess.masked_select(open).any().item<bool>();
    if (may_hold.numel() > 1 && none_holds) {
      guess.index_fill_(0, may_hold.slice(0, 0, 1), 1.0);
    }
    return guess.reshape(sizes);
  }

  // A number may be given as it is. Nothing where it cannot be compared.
  [[nodiscard]] Compared argument(std::size_t number) const {
    const c10::IValue& given = computation_.args()[number];
    if (!given.isTensor()) {
      const at::Scalar scalar = given.toScalar();
      if (scalar.isComplex()) return {};
      return {fixed_bounds(at::scalar_tensor(scalar, at::kDouble)), scalar.type()};
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].argument == number && !operands_[i].only_written) {
        return {views_[i], operands_[i].layout.dtype.toScalarType(), counts(operands_[i])};
      }
    }
    return {};
  }

  [[nodiscard]] bool counts(const Operand& operand) const {
    return operand.source >= 0 &&
           is_count(computation_.sources()[static_cast<std::size_t>(operand.source)].value);
  }

  // Of bits, all combinations are tried.
  [[nodiscard]] Results bits() const {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (views_[i].low.defined() && !views_[i].is_within({0, 1})) return masked_bits();
    }
    if (computation_.info().name.text.find("bitwise_not") != std::string::npos &&
        operands_[0].layout.dtype.toScalarType() != at::kBool) {
      return {};  // of the number 0 that is -1
    }
    const BitsOf of(computation_.info().name.text);
    const auto at = [&](Point one, Point other) {
      const at::Tensor first = at_point(views_[0], one).ne(0);
      return of(first, second(other)).to(at::kDouble);
    };
    const std::vector<at::Tensor> all = {
        at(Point::kLow, Point::kLow), at(Point::kLow, Point::kHigh), at(Point::kHigh, Point::kLow),
        at(Point::kHigh, Point::kHigh)};
    return run_.stored({at::minimum(at::minimum(all[0], all[1]), at::minimum(all[2], all[3]))},
                       {at(Point::kGuess, Point::kGuess)},
                       {at::maximum(at::maximum(all[0], all[1]), at::maximum(all[2], all[3]))});
  }

  // Of other numbers one thing is known: zero takes all bits away.
  [[nodiscard]] Results masked_bits() const {
    if (computation_.info().name.text.find("_and") == std::string::npos) return {};
    const at::Tensor none = is_zero(views_[0]).logical_or(second_is_zero());
    const Bounds rest = unknown_bounds(computation_.slots().front().dtype);
    const auto or_none = [&](const at::Tensor& numbers) {
      return at::where(none, at::zeros_like(numbers), numbers);
    };
    return run_.stored({or_none(rest.low)}, {or_none(rest.guess)}, {or_none(rest.high)});
  }

  static at::Tensor is_zero(const Bounds& bounds) {
    return bounds.low.eq(0).logical_and(bounds.high.eq(0));
  }
  [[nodiscard]] at::Tensor second_is_zero() const {
    if (computation_.args()[1].isTensor()) return is_zero(views_[1]);
    return second(Point::kLow).logical_not();
  }

  struct BitsOf {
    explicit BitsOf(const std::string& op) : name(op) {}
    at::Tensor operator()(const at::Tensor& one, const at::Tensor& other) const {
      if (name.find("_not") != std::string::npos) return one.logical_not();
      if (name.find("_and") != std::string::npos) return one.logical_and(other);
      return name.find("_xor") != std::string::npos ? one.logical_xor(other)
                                                    : one.logical_or(other);
    }
    const std::string& name;
  };

  [[nodiscard]] at::Tensor second(Point point) const {
    if (computation_.args().size() < 2) return at::zeros({}, at::kBool);
    if (computation_.args()[1].isTensor()) return at_point(views_[1], point).ne(0);
    return at::scalar_tensor(computation_.args()[1].toScalar(), at::kDouble).ne(0);
  }

  [[nodiscard]] Results converted() const {
    const Bounds as_is = convert(views_[1], operands_[1].layout.dtype.toScalarType(),
                                 operands_[0].layout.dtype.toScalarType());
    return run_.stored({as_is.low}, {as_is.guess}, {as_is.high});
  }

  [[nodiscard]] Results moved() const {
    bool selected = true;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (views_[i].low.defined() && run_.is_selector(i)) selected &= views_[i].is_fixed();
    }
    if (run_.elementwise() && selected) {
      return run_.stored(run_.call_all(Point::kLow), run_.call_all(Point::kGuess),
                         run_.call_all(Point::kHigh));
    }
    if (rule_.adds) return {};
    std::optional<Bounds> all;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!run_.is_read(i) || run_.is_selector(i)) continue;
      const c10::ScalarType dtype = operands_[i].layout.dtype.toScalarType();
      all = all ? hull(*all, views_[i], dtype) : hull(views_[i], dtype);
    }
    if (!all) return {};
    return Results(computation_.slots().size(), {{}, all});
  }

  [[nodiscard]] Results reduced() const {
    if (run_.elementwise()) {
      return run_.stored(run_.call_all(Point::kLow), run_.call_all(Point::kGuess),
                         run_.call_all(Point::kHigh));
    }
    Numbers low = run_.call_all(Point::kLow, true);
    Numbers guess = run_.call_all(Point::kGuess, true);
    Numbers high = run_.call_all(Point::kHigh, true);
    if (rule_.kind == Kind::kReduceSum) {
      const double count = summed();
      low[0] = at::minimum(low[0], low[0] * count);
      guess[0] = guess[0] * count;
      high[0] = at::maximum(high[0], high[0] * count);
      const bool all_alike = computation_.info().name.text != "aten::cumsum";
      if (all_alike && run_.variables() == 0) low[0] = high[0] = guess[0];
    }
    return run_.stored(low, guess, high);
  }

  // How many numbers are not zero: the sum of as many bools.
  [[nodiscard]] Results counted() const {
    const Layout& read = operands_[0].layout;
    const Bounds bools = convert(views_[0], read.dtype.toScalarType(), at::kBool);
    const Bounds sums = bools.map([&](const at::Tensor& numbers) {
      return run_.elementwise() ? sum(numbers.expand(read.sizes)) : numbers * summed();
    });
    return run_.stored({sums.low}, {sums.guess}, {sums.high});
  }

  // Along the dimensions that the second argument names, or all.
  [[nodiscard]] at::Tensor sum(const at::Tensor& numbers) const {
    const c10::IValue& dims = computation_.args()[1];
    if (dims.isNone()) return numbers.sum();
    return dims.isInt() ? numbers.sum(dims.toInt()) : numbers.sum(dims.toDimVector());
  }

  // How many elements make one of the result.
  [[nodiscard]] double summed() const {
    const Part& part = computation_.slots().front().parts.front();
    const auto read = static_cast<double>(elements(operands_[0].layout));
    if (computation_.info().name.text == "aten::cumsum") return read;
    return read / static_cast<double>(std::max<std::int64_t>(elements(part.layout), 1));
  }

  const BoundsRun& run_;
  const Computation& computation_;
  const ValueRule& rule_;
  const std::vector<Operand>& operands_;
  const std::vector<Bounds>& views_;
};

}  // namespace

std::vector<Known> compute_bounds(const Computation& computation) {
  BoundsRun run(computation);
  return run.look() ? Rules(run).results() : Results{};
}

}  // namespace peakline::vgpu
