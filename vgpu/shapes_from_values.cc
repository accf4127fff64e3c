// Ops whose results have as many elements as some values say. Where these are not known, the value
// policy answers, and it is counted.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <cmath>

#include "vgpu/shape_builder.h"
#include "vgpu/shape_rule_sets.h"
#include "vgpu/values.h"
#include "vgpu/values/host_run.h"
#include "vgpu/values/masks.h"

namespace peakline::vgpu {
namespace {

Engine& engine(const Call& call) { return engine_or_throw(call.info.full_name.c_str()); }

void ask(const Call& call) { engine(call).ask(call.info.name.text, Decides::kSize); }

// How many of `elements` that nobody knows are taken to be nonzero.
std::int64_t share(const Call& call, std::int64_t elements) {
  if (elements == 0) return 0;
  ask(call);
  return static_cast<std::int64_t>(
      std::llround(engine(call).policy().nonzero * static_cast<double>(elements)));
}

std::int64_t total(const at::Tensor& counted) { return counted.sum().item<std::int64_t>(); }

std::int64_t nonzero_count(const Call& call, const at::Tensor& tensor) {
  const HostRun host;
  if (const auto known = known_values(tensor)) return known->count_nonzero().item<std::int64_t>();
  const std::int64_t most = std::min(most_nonzero(tensor).value_or(tensor.numel()), tensor.numel());
  const std::optional<Bounds> bounds = bounds_of(tensor);
  if (!bounds || bounds->is_uniform()) {
    const bool never_zero = bounds && total(bounds->low.gt(0).logical_or(bounds->high.lt(0))) > 0;
    return never_zero ? tensor.numel() : share(call, most);
  }
  const std::int64_t surely = total(bounds->low.gt(0).logical_or(bounds->high.lt(0)));
  const std::int64_t never = total(bounds->low.eq(0).logical_and(bounds->high.eq(0)));
  return surely + share(call, std::min(tensor.numel() - never, std::max(most, surely)) - surely);
}

// The largest that an element may be; nothing when its type is all that is known of it.
std::optional<std::int64_t> largest(const at::Tensor& tensor) {
  const std::optional<Bounds> bounds = bounds_of(tensor);
  if (!bounds || tensor.numel() == 0) return std::nullopt;
  const HostRun host;
  const double high = bounds->high.max().item<double>();
  if (high >= limits_of(tensor.scalar_type()).high) return std::nullopt;
  return static_cast<std::int64_t>(high);
}

// How many different elements there can be at most.
std::int64_t most_different(const at::Tensor& tensor, std::int64_t elements) {
  if (!at::isIntegralType(tensor.scalar_type(), true)) return elements;
  const std::optional<Bounds> bounds = bounds_of(tensor);
  if (!bounds || elements == 0) return elements;
  const HostRun host;
  const double values = bounds->high.max().item<double>() - bounds->low.min().item<double>() + 1;
  return values < static_cast<double>(elements) ? static_cast<std::int64_t>(values) : elements;
}

bool nonzero(const Call& call, ShapeBuilder& out) {
  const at::Tensor& self = call.args[0].toTensor();
  const std::int64_t count = nonzero_count(call, self);
  // CUDA's result is filled by columns.
  out.fresh(at::kLong, {count, self.dim()}, {1, std::max<std::int64_t>(count, 1)});
  return true;
}

bool masked_select(const Call& call, ShapeBuilder& out) {
  const at::Tensor& self = call.args[0].toTensor();
  const at::Tensor& mask = call.args[1].toTensor();
  const auto sizes = at::infer_size(self.sizes(), mask.sizes());
  const std::int64_t all = c10::multiply_integers(sizes);
  const std::int64_t per_element = mask.numel() == 0 ? 0 : all / mask.numel();
  out.fresh(self.scalar_type(), {nonzero_count(call, mask) * per_element});
  return true;
}

// unique and its like: every element may be another one, as far as there are others.
void unique_results(const Call& call, ShapeBuilder& out, at::IntArrayRef sizes, std::int64_t count,
                    at::IntArrayRef inverse, bool wants_inverse, bool wants_counts) {
  ask(call);
  out.fresh(call.args[0].toTensor().scalar_type(), sizes);
  if (wants_inverse)
    out.fresh(at::kLong, inverse);
  else
    out.fresh(at::kLong, {0});
  out.fresh(at::kLong, {wants_counts ? count : 0});
}

bool unique(const Call& call, ShapeBuilder& out) {
  const at::Tensor& self = call.args[0].toTensor();
  const std::int64_t count = most_different(self, self.numel());
  unique_results(call, out, {count}, count, self.sizes(), call.args[2].toBool(),
                 call.args[3].toBool());
  return true;
}

bool unique_dim(const Call& call, ShapeBuilder& out) {
  const at::Tensor& self = call.args[0].toTensor();
  const std::int64_t count = self.size(call.args[1].toInt());
  unique_results(call, out, self.sizes(), count, {count}, call.args[3].toBool(),
                 call.args[4].toBool());
  return true;
}

bool unique_consecutive(const Call& call, ShapeBuilder& out) {
  const at::Tensor& self = call.args[0].toTensor();
  const bool inverse = call.args[1].toBool();
  const bool counts = call.args[2].toBool();
  if (call.args[3].isNone()) {
    unique_results(call, out, {self.numel()}, self.numel(), self.sizes(), inverse, counts);
  } else {
    const std::int64_t count = self.size(call.args[3].toInt());
    unique_results(call, out, self.sizes(), count, {count}, inverse, counts);
  }
  return true;
}

bool repeat_interleave(const Call& call, ShapeBuilder& out) {
  const at::Tensor& repeats = call.args[0].toTensor();
  std::int64_t count = 0;
  if (!call.args[1].isNone()) {
    count = call.args[1].toInt();
  } else {
    const at::Tensor values =
        answered_values(engine(call), repeats, call.info.name.text.c_str(), Decides::kSize);
    const HostRun host;
    count = total(values);
  }
  out.fresh(repeats.scalar_type(), {count});
  return true;
}

bool bincount(const Call& call, ShapeBuilder& out) {
  const at::Tensor& self = call.args[0].toTensor();
  const bool weighted = call.args[1].isTensor() && call.args[1].toTensor().defined();
  std::int64_t bins = 0;
  if (self.numel() > 0) {
    const bool known = known_values(self).has_value();
    if (!known && call.args[2].toInt() == 0) ask(call);
    const std::int64_t told = engine(call).policy().whole;
    const std::int64_t most = largest(self).value_or(told);
    bins = (known || told == ValuePolicy{}.whole ? most : std::min(most, told)) + 1;
  }
  const at::ScalarType dtype = !weighted                                             ? at::kLong
                               : call.args[1].toTensor().scalar_type() == at::kFloat ? at::kFloat
                                                                                     : at::kDouble;
  out.fresh(dtype, {std::max(bins, call.args[2].toInt())});
  return true;
}

// Nothing when it depends on elements that are unknown.
std::optional<bool> are_equal(const at::Tensor& self, const at::Tensor& other) {
  if (self.is_set_to(other)) return true;
  const std::optional<Bounds> one = bounds_of(self);
  const std::optional<Bounds> two = bounds_of(other);
  if (!one || !two) return std::nullopt;
  const HostRun host;
  if (at::any(one->low.gt(two->high).logical_or(two->low.gt(one->high))).item<bool>()) return false;
  if (one->is_fixed() && two->is_fixed()) return true;
  return std::nullopt;
}

bool equal(const Call& call, ShapeBuilder& out) {
  const at::Tensor& self = call.args[0].toTensor();
  if (self.sizes() != call.args[1].toTensor().sizes()) {
    out.value(false);
    return true;
  }
  const std::optional<bool> known = are_equal(self, call.args[1].toTensor());
  if (!known) engine(call).ask(call.info.name.text, Decides::kBranch);
  out.value(known.value_or(engine(call).policy().truth.value_or(false)));
  return true;
}

// x[mask] is x[mask.nonzero()], and the number of nonzeros is a matter of values.
bool index(const Call& call, ShapeBuilder& out) {
  c10::List<std::optional<at::Tensor>> plain;
  bool masked = false;
  for (const c10::IValue& item : call.args[1].toListRef()) {
    if (item.isNone() || !item.toTensor().defined()) {
      plain.push_back(std::nullopt);
      continue;
    }
    const at::Tensor& tensor = item.toTensor();
    const bool is_mask = tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
    if (!is_mask) {
      plain.push_back(
          at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta)));
      continue;
    }
    masked = true;
    const std::int64_t count = nonzero_count(call, tensor);
    for (std::int64_t i = 0; i < tensor.dim(); ++i) {
      plain.push_back(at::empty({count}, tensor.options().device(at::kMeta).dtype(at::kLong)));
    }
  }
  if (!masked) return false;
  const at::Tensor& self = call.args[0].toTensor();
  const at::Tensor result = at::index(
      at::empty_strided(self.sizes(), self.strides(), self.options().device(at::kMeta)), plain);
  out.fresh(result.scalar_type(), result.sizes(), result.strides());
  return true;
}

}  // namespace

void add_dynamic_rules(RuleSet& rules) {
  rules["aten::nonzero"] = &nonzero;
  rules["aten::masked_select"] = &masked_select;
  rules["aten::_unique2"] = &unique;
  rules["aten::unique_dim"] = &unique_dim;
  rules["aten::unique_consecutive"] = &unique_consecutive;
  rules["aten::repeat_interleave.Tensor"] = &repeat_interleave;
  rules["aten::bincount"] = &bincount;
  rules["aten::equal"] = &equal;
  rules["aten::index.Tensor"] = &index;
  rules["aten::_unsafe_index.Tensor"] = &index;
}

}  // namespace peakline::vgpu
