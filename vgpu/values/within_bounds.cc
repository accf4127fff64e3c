// Runs a remembered op on intervals: at their ends, which for the ops that have a rule is enough to
// know the interval of every result.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "vgpu/values/computation.h"

namespace peakline::vgpu {
namespace {

using Kind = ValueRule::Kind;
using Numbers = std::vector<at::Tensor>;  // one for each part of each slot, in order, as double

// Intervals are kept for each element of tensors up to this size, and for all at once above it.
constexpr std::int64_t kElements = 1 << 18;
// Three unknown operands at three points each.
constexpr std::size_t kVariables = 3;

enum class Point : std::uint8_t { kLow, kZero, kHigh, kGuess };

at::Tensor at_point(const Bounds& bounds, Point point) {
  switch (point) {
    case Point::kLow:
      return bounds.low;
    case Point::kHigh:
      return bounds.high;
    case Point::kGuess:
      return bounds.guess;
    default:
      return at::minimum(at::maximum(bounds.low, at::zeros_like(bounds.low)), bounds.high);
  }
}

std::int64_t elements(const Layout& layout) { return c10::multiply_integers(layout.sizes); }

bool same_layout(const Layout& one, const Layout& other) {
  return one.dtype == other.dtype && one.offset == other.offset && one.sizes == other.sizes &&
         one.strides == other.strides;
}

class BoundsRun {
 public:
  explicit BoundsRun(const Computation& computation)
      : computation_(computation), rule_(*computation.rule()), operands_(computation.operands()) {}

  std::vector<Known> run() {
    if (!fits()) return {};
    for (const Source& source : computation_.sources()) {
      known_.push_back(source.value && source.read ? source.value->evaluate() : Known{});
    }
    for (const Operand& operand : operands_) views_.push_back(view(operand));
    group_variables();
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
      case Kind::kReduceSum:
        return reduced();
      case Kind::kDivide:
        return keeps_sign(divisor()) ? at_corners({Point::kLow, Point::kHigh}) : Results{};
      case Kind::kUnimodal:
        return at_corners({Point::kLow, Point::kZero, Point::kHigh});
      case Kind::kPointwise:
        return at_corners(has_twins_ ? Points{Point::kLow, Point::kZero, Point::kHigh}
                                     : Points{Point::kLow, Point::kHigh});
    }
    return {};
  }

 private:
  using Results = std::vector<Known>;
  using Points = std::vector<Point>;

  // Types that can be compared; and whether every element gets an interval of its own.
  bool fits() {
    for (const Operand& operand : operands_) {
      if (operand.source < 0 && !operand.host.defined()) continue;
      if (!has_bounds(operand.layout.dtype.toScalarType())) return false;
      elementwise_ &= elements(operand.layout) <= kElements;
    }
    for (const Slot& slot : computation_.slots()) {
      if (!has_bounds(slot.dtype)) return false;
      elementwise_ &= storage_elements(slot) <= kElements;
    }
    return true;
  }

  static std::int64_t storage_elements(const Slot& slot) {
    return static_cast<std::int64_t>(slot.bytes / c10::elementSize(slot.dtype));
  }

  [[nodiscard]] Bounds view(const Operand& operand) const {
    const c10::ScalarType dtype = operand.layout.dtype.toScalarType();
    Bounds bounds;
    if (operand.source < 0) {
      if (!operand.host.defined()) return bounds;
      bounds = fixed_bounds(operand.host);
    } else {
      const auto source = static_cast<std::size_t>(operand.source);
      const Source& from = computation_.sources()[source];
      const bool other_type = known_[source].bounds && from.value->dtype() != dtype;
      bounds = other_type ? unknown_bounds(dtype) : view(known_[source], operand.layout);
    }
    return elementwise_ ? bounds : hull(bounds, dtype);
  }

  static Bounds view(const Known& known, const Layout& layout) {
    const c10::ScalarType dtype = layout.dtype.toScalarType();
    if (known.bytes) {
      return fixed_bounds(
          host_view(known.bytes, layout.dtype, layout.sizes, layout.strides, layout.offset));
    }
    if (!known.bounds) return unknown_bounds(dtype);
    if (known.bounds->is_uniform()) return *known.bounds;
    return known.bounds->map([&](const at::Tensor& flat) {
      return flat.as_strided(layout.sizes, layout.strides, layout.offset);
    });
  }

  // Operands that are the same tensor vary together: x <= x.
  void group_variables() {
    variable_of_.assign(operands_.size(), -1);
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!views_[i].low.defined() || operands_[i].only_written || views_[i].is_fixed()) continue;
      for (std::size_t j = 0; j < i && variable_of_[i] < 0; ++j) {
        if (variable_of_[j] < 0 || operands_[j].source != operands_[i].source) continue;
        if (!same_layout(operands_[i].layout, operands_[j].layout)) continue;
        variable_of_[i] = variable_of_[j];
        has_twins_ = true;
      }
      if (variable_of_[i] < 0) variable_of_[i] = static_cast<int>(variables_++);
    }
  }

  [[nodiscard]] bool is_selector(const Operand& operand) const {
    return (rule_.selectors >> operand.argument & 1) != 0;
  }

  // `dims`: with as many dimensions as the operand has.
  [[nodiscard]] at::Tensor stand_in(std::size_t number, Point point, bool dims) const {
    const Operand& operand = operands_[number];
    const Bounds& bounds = views_[number];
    if (!bounds.low.defined()) return {};
    if (operand.only_written) return at::empty({0}, at::kDouble);
    at::Tensor numbers = at_point(bounds, point);
    if (numbers.dim() == 0 && elementwise_) numbers = numbers.expand(operand.layout.sizes);
    if (numbers.dim() == 0 && dims) {
      numbers = numbers.expand(std::vector<std::int64_t>(operand.layout.sizes.size(), 1));
    }
    const c10::ScalarType dtype = operand.layout.dtype.toScalarType();
    if (is_selector(operand)) return numbers.to(dtype);
    if (dtype == at::kBool) return numbers.ne(0);
    return numbers.clone(at::MemoryFormat::Contiguous);  // the op may write to it
  }

  [[nodiscard]] Numbers call(const std::vector<Point>& points, bool dims = false) const {
    std::vector<at::Tensor> stand_ins;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      stand_ins.push_back(stand_in(i, points[i], dims));
    }
    const torch::jit::Stack results = computation_.call(stand_ins, false);
    Numbers numbers;
    for (const Slot& slot : computation_.slots()) {
      for (const Part& part : slot.parts) {
        numbers.push_back(result_of(part, stand_ins, results).to(at::kDouble));
      }
    }
    return numbers;
  }

  static at::Tensor result_of(const Part& part, const std::vector<at::Tensor>& stand_ins,
                              const torch::jit::Stack& results) {
    if (part.operand >= 0) return stand_ins[static_cast<std::size_t>(part.operand)];
    const c10::IValue& value = results[static_cast<std::size_t>(part.result)];
    if (part.item < 0) return value.toTensor();
    return value.toListRef()[static_cast<std::size_t>(part.item)].toTensor();
  }

  [[nodiscard]] Numbers call_all(Point point, bool dims = false) const {
    return call(Points(operands_.size(), point), dims);
  }

  // Every combination of the variables' points.
  [[nodiscard]] Results at_corners(const Points& points) const {
    if (variables_ > kVariables) return {};
    std::size_t combinations = 1;
    for (std::size_t i = 0; i < variables_; ++i) combinations *= points.size();
    Numbers low;
    Numbers high;
    for (std::size_t number = 0; number < combinations; ++number) {
      const Numbers found = call(corner(number, points));
      if (low.empty()) {
        low = high = found;
        continue;
      }
      for (std::size_t i = 0; i < found.size(); ++i) {
        low[i] = at::minimum(low[i], found[i]);
        high[i] = at::maximum(high[i], found[i]);
      }
    }
    Numbers guess = variables_ == 0 ? low : call_all(Point::kGuess);
    if (variables_ > 1 && is_difference()) {
      for (std::size_t i = 0; i < guess.size(); ++i)
        guess[i] = different(low[i], guess[i], high[i]);
    }
    return stored(low, guess, high);
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
      if (variable_of_[i] < 0) continue;
      std::size_t digit = number;
      for (int skip = 0; skip < variable_of_[i]; ++skip) digit /= points.size();
      chosen[i] = points[digit % points.size()];
    }
    return chosen;
  }

  [[nodiscard]] const Bounds& divisor() const {
    for (std::size_t i = operands_.size(); i-- > 0;) {
      if (views_[i].low.defined() && !operands_[i].only_written) return views_[i];
    }
    return views_[0];
  }
  static bool keeps_sign(const Bounds& bounds) {
    return bounds.is_fixed() || bounds.is_within({0, HUGE_VAL}) || bounds.is_within({-HUGE_VAL, 0});
  }

  // Two numbers are equal where they must be, and taken to be different where they need not; but
  // where one of two numbers is meant (a stand-in at an end of 0 to 1), the stand-in decides.
  [[nodiscard]] Results compare() const {
    const Bounds& one = views_[0];
    Bounds other;
    if (computation_.args()[1].isTensor()) {
      other = views_[1];
    } else {
      const at::Scalar scalar = computation_.args()[1].toScalar();
      if (scalar.isComplex()) return {};
      other = fixed_bounds(at::scalar_tensor(scalar, at::kDouble));
    }
    const bool twins = has_twins_ && variable_of_.size() > 1 && variable_of_[0] == variable_of_[1];
    const at::Tensor fixed = one.low.eq(one.high).logical_and(other.low.eq(other.high));
    at::Tensor must = fixed.logical_and(one.low.eq(other.low));
    at::Tensor may = one.low.le(other.high).logical_and(other.low.le(one.high));
    if (twins) must = may = at::ones_like(may);
    const at::Tensor guess =
        must.logical_or(one_of_two(one).logical_and(one.guess.eq(other.guess)).logical_and(may));
    if (rule_.kind == Kind::kUnequal) {
      return stored({may.logical_not()}, {guess.logical_not()}, {must.logical_not()});
    }
    return stored({must}, {guess}, {may});
  }

  static at::Tensor one_of_two(const Bounds& bounds) {
    const at::Tensor at_end = bounds.guess.eq(bounds.low).logical_or(bounds.guess.eq(bounds.high));
    return (bounds.high - bounds.low).eq(1).logical_and(at_end);
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
    return stored({at::minimum(at::minimum(all[0], all[1]), at::minimum(all[2], all[3]))},
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
    return stored({or_none(rest.low)}, {or_none(rest.guess)}, {or_none(rest.high)});
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
    return stored({as_is.low}, {as_is.guess}, {as_is.high});
  }

  [[nodiscard]] Results moved() const {
    bool selected = true;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (views_[i].low.defined() && is_selector(operands_[i])) selected &= views_[i].is_fixed();
    }
    if (elementwise_ && selected) {
      return stored(call_all(Point::kLow), call_all(Point::kGuess), call_all(Point::kHigh));
    }
    if (rule_.adds) return {};
    std::optional<Bounds> all;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!views_[i].low.defined() || is_selector(operands_[i]) || operands_[i].only_written) {
        continue;
      }
      const c10::ScalarType dtype = operands_[i].layout.dtype.toScalarType();
      all = all ? hull(*all, views_[i], dtype) : hull(views_[i], dtype);
    }
    if (!all) return {};
    return Results(computation_.slots().size(), {{}, all});
  }

  [[nodiscard]] Results reduced() const {
    if (elementwise_) {
      const Numbers high = call_all(Point::kHigh);
      return stored(call_all(Point::kLow), some_are_so(call_all(Point::kGuess), high), high);
    }
    Numbers low = call_all(Point::kLow, true);
    Numbers guess = call_all(Point::kGuess, true);
    Numbers high = call_all(Point::kHigh, true);
    if (rule_.kind == Kind::kReduceSum) {
      const double count = summed();
      low[0] = at::minimum(low[0], low[0] * count);
      guess[0] = guess[0] * count;
      high[0] = at::maximum(high[0], high[0] * count);
      const bool all_alike = computation_.info().name.text != "aten::cumsum";
      if (all_alike && variables_ == 0) low[0] = high[0] = guess[0];
    }
    return stored(low, some_are_so(guess, high), high);
  }

  // How many predictions are right, as a sum or a mean of bools: each by itself is taken to be
  // wrong, but of several that may be right a healthy run has one.
  [[nodiscard]] Numbers some_are_so(Numbers guess, const Numbers& high) const {
    const std::string& name = computation_.info().name.text;
    const bool is_mean = name == "aten::mean";
    if ((name != "aten::sum" && !is_mean) || !views_[0].is_within({0, 1})) return guess;
    const double count = summed();
    const double unit = is_mean ? 1 / count : 1;
    const at::Tensor hidden = guess[0].eq(0).logical_and(high[0].ge(2 * unit));
    const at::Tensor some = at::full_like(guess[0], unit * guess_in(at::kLong, {0, count}));
    guess[0] = at::where(hidden, some, guess[0]);
    return guess;
  }

  // How many elements make one of the result.
  [[nodiscard]] double summed() const {
    const Part& part = computation_.slots().front().parts.front();
    const auto read = static_cast<double>(elements(operands_[0].layout));
    if (computation_.info().name.text == "aten::cumsum") return read;
    return read / static_cast<double>(std::max<std::int64_t>(elements(part.layout), 1));
  }

  [[nodiscard]] Results stored(const Numbers& low, const Numbers& guess,
                               const Numbers& high) const {
    Results results;
    std::size_t number = 0;
    for (const Slot& slot : computation_.slots()) {
      std::optional<Bounds> bounds;
      for (const Part& part : slot.parts) {
        const bool is_there = number < low.size();
        if (is_there) {
          const auto same = [](const at::Tensor& tensor) { return tensor.to(at::kDouble); };
          bounds =
              put(slot, part, bounds,
                  fit({same(low[number]), same(guess[number]), same(high[number])}, slot.dtype));
        }
        ++number;
      }
      results.push_back({{}, bounds});
    }
    return results;
  }

  // `part` with these bounds, and the rest of the storage as it was.
  [[nodiscard]] Bounds put(const Slot& slot, const Part& part, const std::optional<Bounds>& before,
                           const Bounds& bounds) const {
    if (!elementwise_) return put_uniform(slot, part, before, bounds);
    const std::int64_t size = storage_elements(slot);
    const Bounds rest = before ? *before : rest_of(slot);
    const auto write = [&](const at::Tensor& flat, const at::Tensor& numbers) {
      at::Tensor all = flat.dim() == 0 ? flat.expand({size}).clone() : flat.clone();
      all.as_strided(part.layout.sizes, part.layout.strides, part.layout.offset).copy_(numbers);
      return all;
    };
    return {write(rest.low, bounds.low), write(rest.guess, bounds.guess),
            write(rest.high, bounds.high)};
  }

  [[nodiscard]] Bounds put_uniform(const Slot& slot, const Part& part,
                                   const std::optional<Bounds>& before,
                                   const Bounds& bounds) const {
    const Bounds alike = bounds.map([](const at::Tensor& numbers) { return numbers.reshape({}); });
    if (before) return hull(*before, alike, slot.dtype);
    const bool covers = elements(part.layout) == storage_elements(slot);
    return slot.source < 0 || covers ? alike : hull(rest_of(slot), alike, slot.dtype);
  }

  // The whole storage as it was before the op.
  [[nodiscard]] Bounds rest_of(const Slot& slot) const {
    if (slot.source < 0) return unknown_bounds(slot.dtype);
    const std::int64_t size = storage_elements(slot);
    Layout whole{c10::scalarTypeToTypeMeta(slot.dtype), {size}, {1}, 0};
    return view(known_[static_cast<std::size_t>(slot.source)], whole);
  }

  const Computation& computation_;
  const ValueRule& rule_;
  const std::vector<Operand>& operands_;
  bool elementwise_ = true;
  bool has_twins_ = false;
  std::size_t variables_ = 0;
  std::vector<Known> known_;
  std::vector<Bounds> views_;
  std::vector<int> variable_of_;  // of each operand; -1: it is known
};

}  // namespace

std::vector<Known> compute_bounds(const Computation& computation) {
  return BoundsRun(computation).run();
}

}  // namespace peakline::vgpu
