#include "vgpu/values/value_rules.h"

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_map>

#include "vgpu/call.h"
#include "vgpu/values/value.h"

namespace peakline::vgpu {
namespace {

using Kind = ValueRule::Kind;
using Found = std::optional<Range>;
using RuleMap = std::unordered_map<std::string, ValueRule>;

constexpr double kAny = std::numeric_limits<double>::infinity();

Found unit(const Call&, int result) { return result == 0 ? Found(Range{0, 1}) : std::nullopt; }
Found around_zero(const Call&, int) { return Range{-1, 1}; }
Found at_least_zero(const Call&, int result) {
  return result == 0 ? Found(Range{0, kAny}) : std::nullopt;
}
Found at_most_zero(const Call&, int) { return Range{-kAny, 0}; }
Found never(const Call&, int) { return Range{0, 0}; }

double number(const Call& call, std::size_t argument, double otherwise) {
  if (argument >= call.args.size() || call.args[argument].isNone()) return otherwise;
  return call.args[argument].toScalar().toDouble();
}

// [0, n) for indices along the dimension that `dim` names; along all of it where it names none.
Found index_along(const Call& call, const c10::IValue* dim) {
  const at::Tensor& self = call.args[0].toTensor();
  std::int64_t size = self.numel();
  if (dim != nullptr && dim->isInt()) {
    if (self.dim() > 0) size = self.size(at::maybe_wrap_dim(dim->toInt(), self.dim()));
  }
  return size == 0 ? std::nullopt : Found(Range{0, static_cast<double>(size - 1)});
}

Found argument_one_is_dim(const Call& call, int) {
  return index_along(call, call.args.size() > 1 ? &call.args[1] : nullptr);
}
Found second_is_index(const Call& call, int result) {
  return result == 1 && call.args.size() > 1 ? index_along(call, &call.args[1]) : std::nullopt;
}
// topk(self, k, dim), kthvalue(self, k, dim)
Found topk_index(const Call& call, int result) {
  return result == 1 ? index_along(call, &call.args[2]) : std::nullopt;
}
// sort.stable(self, stable, dim)
Found sort_index(const Call& call, int result) {
  if (result != 1) return std::nullopt;
  return index_along(
      call, call.args[1].isBool() || call.args[1].isNone() ? &call.args[2] : &call.args[1]);
}
Found last_dimension(const Call& call, int) {
  const c10::IValue last(std::int64_t{-1});
  return index_along(call, &last);
}
// nonzero(self): a column for each dimension. All of them have one interval, that of the longest.
Found longest_dimension(const Call& call, int) {
  const at::IntArrayRef sizes = call.args[0].toTensor().sizes();
  const std::int64_t longest = sizes.empty() ? 1 : *std::max_element(sizes.begin(), sizes.end());
  return longest == 0 ? std::nullopt : Found(Range{0, static_cast<double>(longest - 1)});
}
Found count(const Call& call, int) {
  return Range{0, static_cast<double>(call.args[0].toTensor().numel())};
}
Found of_uniform(const Call& call, int) { return Range{number(call, 1, 0), number(call, 2, 1)}; }

// random_(), random_.to(to), random_.from(from, to)
Found of_random(const Call& call, int) {
  const bool from = call.info.full_name == "aten::random_.from";
  if (!from && call.info.full_name != "aten::random_.to") return Range{0, kAny};
  if (from && call.args[2].isNone()) return Range{number(call, 1, 0), kAny};
  return Range{from ? number(call, 1, 0) : 0, number(call, from ? 2 : 1, 1) - 1};
}
// Of a division by a positive number in host memory.
Found of_remainder(const Call& call, int) {
  const double divisor = call.tensors.size() < 2 ? 0 : host_number(*call.tensors[1]).value_or(0);
  if (!(divisor > 0)) return std::nullopt;
  const StorageRecord* record = record_of(*call.tensors[0]);
  const bool whole = at::isIntegralType(call.tensors[0]->scalar_type(), true) ||
                     (record != nullptr && record->value && record->value->whole());
  return Range{0, whole && divisor == std::floor(divisor) ? divisor - 1 : divisor};
}
Found even_power(const Call& call, int) {
  const double exponent = call.args[1].isScalar() ? number(call, 1, 1) : 1;
  return exponent / 2 == std::floor(exponent / 2) ? Found(Range{0, kAny}) : std::nullopt;
}
Found permutation(const Call& call, int) {
  const double size = number(call, 0, 0);
  return size < 1 ? std::nullopt : Found(Range{0, size - 1});
}

void add_logic(RuleMap& rules) {
  for (const char* name : {"logical_and", "logical_or", "logical_xor", "logical_not", "lt", "le",
                           "gt", "ge", "where", "signbit"}) {
    rules[name] = {.kind = Kind::kPointwise, .creates = true};
  }
  for (const char* name : {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"}) {
    rules[name] = {.kind = Kind::kBits, .creates = true};
  }
  rules["eq"] = {.kind = Kind::kEqual, .creates = true};
  rules["ne"] = {.kind = Kind::kUnequal, .creates = true};
  rules["isin"] = {.kind = Kind::kEqual, .creates = true};  // equal to one of several
  // Healthy: what the program did not write itself is finite.
  for (const char* name : {"isnan", "isinf", "isposinf", "isneginf"})
    rules[name] = {.range = never};
}

void add_arithmetic(RuleMap& rules) {
  for (const char* name : {"add", "sub", "rsub", "mul"}) {
    rules[name] = {.kind = Kind::kPointwise, .needs_all = true};
  }
  for (const char* name :
       {"maximum", "minimum", "fmax",  "fmin",         "neg",        "floor", "ceil",  "round",
        "trunc",   "sign",    "sgn",   "log",          "log2",       "log10", "log1p", "expm1",
        "erf",     "atan",    "asinh", "masked_fill_", "leaky_relu", "elu",   "rsqrt"}) {
    rules[name] = {.kind = Kind::kPointwise};
  }
  for (const char* name : {"clamp", "clamp_min", "clamp_max", "threshold", "hardtanh"}) {
    rules[name] = {.kind = Kind::kPointwise, .creates = true};
  }
  for (const char* name : {"exp", "exp2", "relu", "sqrt", "softplus"}) {
    rules[name] = {.kind = Kind::kPointwise, .range = at_least_zero};
  }
  for (const char* name : {"sigmoid", "hardsigmoid"}) {
    rules[name] = {.kind = Kind::kPointwise, .range = unit};
  }
  rules["tanh"] = {.kind = Kind::kPointwise, .range = around_zero};
  for (const char* name : {"abs", "square"}) {
    rules[name] = {.kind = Kind::kUnimodal, .range = at_least_zero};
  }
  rules["pow"] = {.kind = Kind::kUnimodal, .range = even_power};
  for (const char* name : {"div", "floor_divide", "reciprocal"}) {
    rules[name] = {.kind = Kind::kDivide, .needs_all = true};
  }
}

void add_reductions(RuleMap& rules) {
  for (const char* name : {"any", "all", "amax", "amin", "mean", "nanmean"}) {
    rules[name] = {.kind = Kind::kReduceAlike};
  }
  // With a dimension, the second result says where the first was found.
  for (const char* name : {"max", "min", "median"}) {
    rules[name] = {.kind = Kind::kReduceAlike, .range = second_is_index, .picks = true};
  }
  for (const char* name : {"cummax", "cummin"}) {
    rules[name] = {.kind = Kind::kReduceAlike, .range = second_is_index};
  }
  rules["topk"] = {.kind = Kind::kReduceAlike, .range = topk_index, .picks = true};
  rules["kthvalue"] = {.kind = Kind::kReduceAlike, .range = topk_index, .picks = true};
  rules["sort"] = {.kind = Kind::kReduceAlike, .range = sort_index, .picks = true};
  for (const char* name : {"sum", "nansum", "cumsum"}) rules[name] = {.kind = Kind::kReduceSum};
  for (const char* name : {"argmax", "argmin"}) {
    rules[name] = {.range = argument_one_is_dim, .picks = true};
  }
  for (const char* name :
       {"norm", "linalg_vector_norm", "_foreach_norm", "var", "std", "cdist", "_cdist_forward",
        "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"}) {
    rules[name] = {.range = at_least_zero};
  }
  rules["nonzero"] = {.range = longest_dimension};
  rules["count_nonzero"] = {.kind = Kind::kReduceSum, .range = count};
}

void add_ranges(RuleMap& rules) {
  rules["_softmax"] = {.range = unit};
  rules["_log_softmax"] = {.range = at_most_zero};
  for (const char* name : {"sin", "cos"}) rules[name] = {.range = around_zero};
  for (const char* name : {"bernoulli", "bernoulli_"}) {
    rules[name] = {.range = unit, .whole = true};
  }
  rules["uniform_"] = {.range = of_uniform};
  for (const char* name : {"exponential_", "log_normal_", "_standard_gamma"}) {
    rules[name] = {.range = at_least_zero};
  }
  for (const char* name : {"geometric_", "poisson", "binomial"}) {
    rules[name] = {.range = at_least_zero, .whole = true};
  }
  rules["remainder"] = {.range = of_remainder};
  rules["random_"] = {.range = of_random, .whole = true};
  rules["randperm"] = {.range = permutation};
  rules["multinomial"] = {.range = last_dimension, .picks = true};
}

// `selectors` are arguments, as bits.
void add_moves(RuleMap& rules) {
  for (const char* name : {"cat", "flip", "roll", "repeat", "clone"}) {
    rules[name] = {.kind = Kind::kMove};
  }
  for (const char* name : {"tril", "triu", "constant_pad_nd", "diag_embed"}) {
    rules[name] = {.kind = Kind::kMove, .adds = true};
  }
  for (const char* name : {"gather", "index_select", "index_copy", "index_copy_"}) {
    rules[name] = {.kind = Kind::kMove, .selectors = 0b100};
  }
  for (const char* name : {"index", "_unsafe_index", "take", "embedding", "_index_put_impl_"}) {
    rules[name] = {.kind = Kind::kMove, .selectors = 0b10};
  }
  for (const char* name : {"scatter", "scatter_", "index_fill_"}) {
    rules[name] = {.kind = Kind::kMove, .adds = true, .selectors = 0b100};
  }
  rules["copy_"] = {.kind = Kind::kConvert, .overwrites = true};
  for (const char* name : {"fill_", "zero_"}) {
    rules[name] = {.kind = Kind::kMove, .overwrites = true, .adds = true};
  }
}

// Overloads that add to what is there instead of moving elements.
bool accumulates(const Call& call) {
  const std::string& name = call.info.full_name;
  if (name.find("reduce") != std::string::npos) return true;
  return name == "aten::_index_put_impl_" && call.args.size() > 3 && call.args[3].toBool();
}

RuleMap make_rules() {
  RuleMap rules;
  add_logic(rules);
  add_arithmetic(rules);
  add_reductions(rules);
  add_ranges(rules);
  add_moves(rules);
  return rules;
}

}  // namespace

std::optional<double> host_number(const at::Tensor& tensor) noexcept {
  if (!tensor.defined() || !tensor.is_cpu() || tensor.dim() != 0) return std::nullopt;
  if (record_of(tensor) != nullptr) return std::nullopt;  // a virtual one of the host
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return *static_cast<const double*>(tensor.const_data_ptr());
    case at::kFloat:
      return *static_cast<const float*>(tensor.const_data_ptr());
    case at::kLong:
      return static_cast<double>(*static_cast<const std::int64_t*>(tensor.const_data_ptr()));
    case at::kBool:
      return *static_cast<const bool*>(tensor.const_data_ptr()) ? 1.0 : 0.0;
    default:
      return std::nullopt;
  }
}

const ValueRule* value_rule(std::string_view name) {
  static const auto* const kRules = new RuleMap(make_rules());
  constexpr std::string_view kSpace = "aten::";
  if (!name.starts_with(kSpace)) return nullptr;
  std::string own(name.substr(kSpace.size()));
  auto found = kRules->find(own);
  // logical_or_ is logical_or, written to its first operand.
  if (found == kRules->end() && own.ends_with('_')) {
    own.pop_back();
    found = kRules->find(own);
    if (found != kRules->end() && found->second.kind == Kind::kMove) return nullptr;
  }
  return found == kRules->end() ? nullptr : &found->second;
}

bool applies(const ValueRule& rule, const Call& call) {
  if (rule.kind == Kind::kMove) return !accumulates(call);
  return call.info.name.text != "aten::pow" ||
         call.info.full_name.find("Tensor_Scalar") != std::string::npos;
}

}  // namespace peakline::vgpu
