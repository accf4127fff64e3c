// Ops whose results have as many elements as some values say. Where these are not known, the value
// policy answers, and it is counted.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <cmath>

#include "vgpu/shape_builder.h"
#include "vgpu/shape_rule_sets.h"
#include "vgpu/values.h"

namespace peakline::vgpu {
namespace {

Engine& engine(const Call& call) { return engine_or_throw(call.info.full_name.c_str()); }

// How many of `elements` are taken to be nonzero.
std::int64_t share(const Call& call, std::int64_t elements) {
  if (elements == 0) return 0;
  engine(call).count_unknown(call.info.name.text);
  return static_cast<std::int64_t>(
      std::llround(engine(call).policy().nonzero * static_cast<double>(elements)));
}

std::int64_t nonzero_count(const Call& call, const at::Tensor& tensor) {
  if (is_virtual(tensor)) {
    if (!has_values(tensor)) return share(call, tensor.numel());
    return values_of(tensor).count_nonzero().item<std::int64_t>();
  }
  if (tensor.is_cpu()) return tensor.count_nonzero().item<std::int64_t>();
  return share(call, tensor.numel());
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

// unique and its like: every element may be another one.
void unique_results(const Call& call, ShapeBuilder& out, at::IntArrayRef sizes, std::int64_t count,
                    at::IntArrayRef inverse, bool wants_inverse, bool wants_counts) {
  engine(call).count_unknown(call.info.name.text);
  out.fresh(call.args[0].toTensor().scalar_type(), sizes);
  if (wants_inverse)
    out.fresh(at::kLong, inverse);
  else
    out.fresh(at::kLong, {0});
  out.fresh(at::kLong, {wants_counts ? count : 0});
}

bool unique(const Call& call, ShapeBuilder& out) {
  const at::Tensor& self = call.args[0].toTensor();
  unique_results(call, out, {self.numel()}, self.numel(), self.sizes(), call.args[2].toBool(),
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
  } else if (is_virtual(repeats) && has_values(repeats)) {
    count = values_of(repeats).sum().item<std::int64_t>();
  } else {
    engine(call).count_unknown(call.info.name.text);
    count = repeats.numel() * engine(call).policy().whole;
  }
  out.fresh(repeats.scalar_type(), {count});
  return true;
}

bool bincount(const Call& call, ShapeBuilder& out) {
  const at::Tensor& self = call.args[0].toTensor();
  const bool weighted = call.args[1].isTensor() && call.args[1].toTensor().defined();
  std::int64_t bins = 0;
  if (is_virtual(self) && has_values(self)) {
    bins = self.numel() == 0 ? 0 : values_of(self).max().item<std::int64_t>() + 1;
  } else if (self.numel() > 0) {
    engine(call).count_unknown(call.info.name.text);
    bins = engine(call).policy().whole + 1;
  }
  const at::ScalarType dtype = !weighted                                             ? at::kLong
                               : call.args[1].toTensor().scalar_type() == at::kFloat ? at::kFloat
                                                                                     : at::kDouble;
  out.fresh(dtype, {std::max(bins, call.args[2].toInt())});
  return true;
}

bool equal(const Call& call, ShapeBuilder& out) {
  const at::Tensor& self = call.args[0].toTensor();
  if (self.sizes() != call.args[1].toTensor().sizes()) {
    out.value(false);
    return true;
  }
  engine(call).count_unknown(call.info.name.text);
  out.value(engine(call).policy().truth);
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
