#include "vgpu/values/bounds_run.h"

#include <ATen/ATen.h>

namespace peakline::vgpu {
namespace {

// Intervals are kept for each element of tensors up to this size, and for all at once above it.
constexpr std::int64_t kElements = 1 << 18;

c10::ScalarType type_of(const Operand& operand) { return operand.layout.dtype.toScalarType(); }

bool same_layout(const Layout& one, const Layout& other) {
  return one.dtype == other.dtype && one.offset == other.offset && one.sizes == other.sizes &&
         one.strides == other.strides;
}

std::int64_t storage_elements(const Slot& slot) {
  return static_cast<std::int64_t>(slot.bytes / c10::elementSize(slot.dtype));
}

Bounds view_of(const Known& known, const Layout& layout) {
  if (known.bytes) {
    return fixed_bounds(
        host_view(known.bytes, layout.dtype, layout.sizes, layout.strides, layout.offset));
  }
  if (!known.bounds) return unknown_bounds(layout.dtype.toScalarType());
  if (known.bounds->is_uniform()) return *known.bounds;
  return known.bounds->map([&](const at::Tensor& flat) {
    return flat.as_strided(layout.sizes, layout.strides, layout.offset);
  });
}

at::Tensor result_of(const Part& part, const std::vector<at::Tensor>& stand_ins,
                     const torch::jit::Stack& results) {
  if (part.operand >= 0) return stand_ins[static_cast<std::size_t>(part.operand)];
  const c10::IValue& value = results[static_cast<std::size_t>(part.result)];
  if (part.item < 0) return value.toTensor();
  return value.toListRef()[static_cast<std::size_t>(part.item)].toTensor();
}

}  // namespace

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

bool BoundsRun::look() {
  if (!has_types_with_bounds()) return false;
  for (const Source& source : computation_.sources()) {
    known_.push_back(source.value && source.read ? source.value->evaluate() : Known{});
  }
  for (const Operand& operand : operands_) views_.push_back(view(operand));
  group_variables();
  return true;
}

bool BoundsRun::has_types_with_bounds() {
  for (const Operand& operand : operands_) {
    if (operand.source < 0 && !operand.host.defined()) continue;
    if (!has_bounds(type_of(operand))) return false;
    elementwise_ &= elements(operand.layout) <= kElements;
  }
  for (const Slot& slot : computation_.slots()) {
    if (!has_bounds(slot.dtype)) return false;
    elementwise_ &= storage_elements(slot) <= kElements;
  }
  return true;
}

Bounds BoundsRun::view(const Operand& operand) const {
  Bounds bounds;
  if (operand.source < 0) {
    if (!operand.host.defined()) return bounds;
    bounds = fixed_bounds(operand.host);
  } else {
    const auto source = static_cast<std::size_t>(operand.source);
    const Source& from = computation_.sources()[source];
    const bool other_type = known_[source].bounds && from.value->dtype() != type_of(operand);
    bounds =
        other_type ? unknown_bounds(type_of(operand)) : view_of(known_[source], operand.layout);
  }
  return elementwise_ ? bounds : hull(bounds, type_of(operand));
}

// Operands that are the same tensor vary together: x <= x.
void BoundsRun::group_variables() {
  variable_of_.assign(operands_.size(), -1);
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!is_read(i) || views_[i].is_fixed()) continue;
    for (std::size_t j = 0; j < i && variable_of_[i] < 0; ++j) {
      if (variable_of_[j] < 0 || operands_[j].source != operands_[i].source) continue;
      if (!same_layout(operands_[i].layout, operands_[j].layout)) continue;
      variable_of_[i] = variable_of_[j];
      has_twins_ = true;
    }
    if (variable_of_[i] < 0) variable_of_[i] = static_cast<int>(variables_++);
  }
}

bool BoundsRun::is_selector(std::size_t operand) const {
  return (computation_.rule()->selectors >> operands_[operand].argument & 1) != 0;
}

at::Tensor BoundsRun::stand_in(std::size_t number, Point point, bool dims) const {
  const Operand& operand = operands_[number];
  const Bounds& bounds = views_[number];
  if (!bounds.low.defined()) return {};
  if (operand.only_written) return at::empty({0}, at::kDouble);
  at::Tensor numbers = at_point(bounds, point);
  if (numbers.dim() == 0 && elementwise_) numbers = numbers.expand(operand.layout.sizes);
  if (numbers.dim() == 0 && dims) {
    numbers = numbers.expand(std::vector<std::int64_t>(operand.layout.sizes.size(), 1));
  }
  if (is_selector(number)) return numbers.to(type_of(operand));
  if (type_of(operand) == at::kBool) return numbers.ne(0);
  return numbers.clone(at::MemoryFormat::Contiguous);  // the op may write to it
}

BoundsRun::Numbers BoundsRun::call(const Points& points, bool dims) const {
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

BoundsRun::Numbers BoundsRun::call_all(Point point, bool dims) const {
  return call(Points(operands_.size(), point), dims);
}

BoundsRun::Results BoundsRun::stored(const Numbers& low, const Numbers& guess,
                                     const Numbers& high) const {
  Results results;
  std::size_t number = 0;
  for (const Slot& slot : computation_.slots()) {
    std::optional<Bounds> bounds;
    for (const Part& part : slot.parts) {
      const bool is_there = number < low.size();
      if (is_there) {
        const auto same = [](const at::Tensor& tensor) { return tensor.to(at::kDouble); };
        bounds = put(slot, part, bounds,
                     fit({same(low[number]), same(guess[number]), same(high[number])}, slot.dtype));
      }
      ++number;
    }
    results.push_back({{}, bounds});
  }
  return results;
}

// `part` with these bounds, and the rest of the storage as it was.
Bounds BoundsRun::put(const Slot& slot, const Part& part, const std::optional<Bounds>& before,
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

Bounds BoundsRun::put_uniform(const Slot& slot, const Part& part,
                              const std::optional<Bounds>& before, const Bounds& bounds) const {
  const Bounds alike = bounds.map([](const at::Tensor& numbers) { return numbers.reshape({}); });
  if (before) return hull(*before, alike, slot.dtype);
  const bool covers = elements(part.layout) == storage_elements(slot);
  return slot.source < 0 || covers ? alike : hull(rest_of(slot), alike, slot.dtype);
}

// The whole storage as it was before the op.
Bounds BoundsRun::rest_of(const Slot& slot) const {
  if (slot.source < 0) return unknown_bounds(slot.dtype);
  const Layout whole{c10::scalarTypeToTypeMeta(slot.dtype), {storage_elements(slot)}, {1}, 0};
  return view_of(known_[static_cast<std::size_t>(slot.source)], whole);
}

}  // namespace peakline::vgpu
