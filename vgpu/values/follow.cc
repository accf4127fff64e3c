// Decides what is remembered of an op: most of a training step's are about unknown numbers, and cost
// a look at their operands.
#include <ATen/ATen.h>

#include "vgpu/values.h"
#include "vgpu/values/masks.h"

namespace peakline::vgpu {
namespace {

// Longer chains are computed on the way. Where only bounds would come out, that is done for small
// tensors (which sequences are finished), and large ones are let go of.
constexpr std::uint32_t kDeepExact = 256;
constexpr std::uint32_t kDeepBounds = 32;
constexpr std::uint64_t kFewBytes = 32 << 10;
// An unknown number that is added or multiplied leaves next to nothing to know (infinities, zeros);
// that is looked at for small tensors only.
constexpr std::int64_t kFewElements = 4096;
constexpr std::uint64_t kHeldBytes = std::uint64_t{64} << 20;

ValuePtr& value_slot(const at::Tensor& tensor) { return record_of(tensor)->value; }

struct Operands {
  bool exact = true;     // all are known
  bool some = false;     // something is known of one
  bool without = false;  // nothing is known of one
  bool copied = true;    // those in host memory are small
  bool hosts = false;    // some are in host memory
};

// A host tensor is copied, since the program may write to it before anybody asks.
bool can_be_copied(const at::Tensor& host) noexcept {
  const Engine* engine = current_engine();
  return host.is_cpu() && engine != nullptr && host.nbytes() <= engine->value_bytes();
}

Operands look_at(const Call& call) noexcept {
  Operands found;
  const bool overwrites = call.info.value_rule != nullptr && call.info.value_rule->overwrites;
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    const at::Tensor& tensor = *call.tensors[i];
    if (!tensor.defined()) continue;
    if (call.only_writes(i) || (i == 0 && overwrites)) {
      if (covers_storage(tensor)) continue;
    }
    if (record_of(tensor) == nullptr) {
      found.copied &= can_be_copied(tensor);
      found.hosts = true;
      continue;
    }
    const StorageRecord* record = record_of(tensor);
    const Value* value = record == nullptr ? nullptr : record->value.get();
    found.exact &= value != nullptr && value->exact();
    found.some |= value != nullptr;
    found.without |= value == nullptr;
  }
  return found;
}

// x * x, x - x
bool are_twins(const Call& call) noexcept {
  return call.tensors.size() > 1 && call.tensors[0]->defined() &&
         call.tensors[0]->is_same(*call.tensors[1]);
}

// x * 0
bool times_nothing(const Call& call) noexcept {
  if (call.tensors.size() < 2 || !call.tensors[1]->defined()) return false;
  return call.info.name.text.starts_with("aten::mul") && host_number(*call.tensors[1]) == 0.0;
}

// A bool is 0 or 1 even where nothing else is known: what is counted of a mask, or made a number of,
// goes by the same stand-ins as the mask.
bool reads_bools(const Call& call, const ValueRule& rule) noexcept {
  using Kind = ValueRule::Kind;
  const bool counts = rule.kind == Kind::kReduceAlike || rule.kind == Kind::kReduceSum;
  const std::size_t read = rule.kind == Kind::kConvert ? 1 : 0;
  if (!counts && rule.kind != Kind::kConvert) return false;
  return call.tensors.size() > read && call.tensors[read]->defined() &&
         call.tensors[read]->scalar_type() == at::kBool;
}

bool is_useful(const Call& call, const ValueRule& rule, const Operands& operands) noexcept {
  if (rule.kind == ValueRule::Kind::kNone) return false;
  if (rule.creates || are_twins(call) || reads_bools(call, rule)) return true;
  if (rule.needs_all && operands.without) {
    if (operands.hosts) return times_nothing(call);
    return operands.some && call.tensors[0]->numel() <= kFewElements;
  }
  return operands.some || operands.hosts;
}

Follow by_rule(const Call& call, const Operands& operands) noexcept {
  const ValueRule* rule = call.info.value_rule;
  if (rule == nullptr) return Follow::kNothing;
  const bool useful = is_useful(call, *rule, operands);
  if (useful && !call.info.random && applies(*rule, call)) return Follow::kBounds;
  return rule->range != nullptr ? Follow::kRange : Follow::kNothing;
}

std::uint64_t largest_result(const Call& call, c10::ArrayRef<std::uint64_t> fresh) {
  std::uint64_t largest = 0;
  for (const std::uint64_t bytes : fresh) largest += bytes;
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    if (!call.writes(i) || record_of(*call.tensors[i]) == nullptr) continue;
    largest = std::max<std::uint64_t>(largest, call.tensors[i]->storage().nbytes());
  }
  return largest;
}

void forget_written(const Call& call) {
  if (call.info.written == 0) return;
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    if (call.writes(i) && record_of(*call.tensors[i]) != nullptr) forget_values(*call.tensors[i]);
  }
}

// Storages of the results, in the order of the computation's slots.
std::vector<ValuePtr*> places(const Call& call, const Computation& computation,
                              c10::ArrayRef<Output> outputs, const torch::jit::Stack& results) {
  std::vector<ValuePtr*> found(computation.slots().size(), nullptr);
  const auto add = [&](const Output& output, const at::Tensor& tensor) {
    if (output.kind != Output::Kind::kFresh || record_of(tensor) == nullptr) return;
    found[static_cast<std::size_t>(output.source)] = &value_slot(tensor);
  };
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].kind == Output::Kind::kFresh) add(outputs[i], results[i].toTensor());
    if (outputs[i].kind != Output::Kind::kList) continue;
    const auto items = results[i].toListRef();
    for (std::size_t j = 0; j < items.size(); ++j) add(outputs[i].items[j], items[j].toTensor());
  }
  for (std::size_t i = 0; i < computation.operands().size(); ++i) {
    const int source = computation.operands()[i].source;
    if (source < 0) continue;
    const int slot = computation.sources()[static_cast<std::size_t>(source)].slot;
    if (slot >= 0) found[static_cast<std::size_t>(slot)] = &value_slot(*call.tensors[i]);
  }
  return found;
}

void defer(const Call& call, c10::ArrayRef<Output> outputs, c10::ArrayRef<std::uint64_t> fresh,
           const torch::jit::Stack& results, bool exact) {
  const ValueRule* rule = call.info.value_rule;
  if (rule != nullptr && (rule->kind == ValueRule::Kind::kNone || !applies(*rule, call))) {
    rule = nullptr;
  }
  auto computation = std::make_shared<Computation>(call, outputs, fresh, rule, exact);
  const bool fold =
      computation->depth() > (exact ? kDeepExact : kDeepBounds) || computation->held() > kHeldBytes;
  if (fold && !exact && largest_result(call, fresh) > kFewBytes) return forget_written(call);
  const std::vector<ValuePtr*> found = places(call, *computation, outputs, results);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == nullptr) continue;
    const c10::ScalarType dtype = computation->slots()[i].dtype;
    ValuePtr value = Value::deferred(computation, static_cast<int>(i), dtype, exact);
    if (!exact && found.size() == 1) note_mask(call, *computation, value);
    if (fold) {
      const Known known = value->evaluate();  // which lets go of what it came from
      if (!known.bytes && !known.bounds) value.reset();
    }
    *found[i] = std::move(value);
  }
}

// What the op says of its results by itself.
void give_range(const Call& call, const at::Tensor& tensor, int result) {
  const ValueRule& rule = *call.info.value_rule;
  if (rule.range == nullptr || !tensor.defined() || record_of(tensor) == nullptr) return;
  const c10::ScalarType dtype = tensor.scalar_type();
  std::optional<Range> range = rule.range(call, result);
  if (!range || !has_bounds(dtype) || !covers_storage(tensor)) return;
  const Range limits = limits_of(dtype);
  range->low = std::max(range->low, limits.low);
  range->high = std::min(range->high, limits.high);
  if (range->low <= range->high) {
    value_slot(tensor) = Value::of_range(*range, dtype, rule.whole, rule.picks);
  }
}

void give_ranges(const Call& call, c10::ArrayRef<Output> outputs, torch::jit::Stack& results,
                 int first) {
  for (std::size_t i = static_cast<std::size_t>(first); i < outputs.size(); ++i) {
    if (outputs[i].kind == Output::Kind::kList) {
      for (const c10::IValue& item : results[i].toListRef()) give_range(call, item.toTensor(), 0);
    } else if (outputs[i].kind == Output::Kind::kFresh ||
               outputs[i].kind == Output::Kind::kArgument) {
      give_range(call, results[i].toTensor(), static_cast<int>(i));
    }
  }
}

bool makes_anything(const Call& call, c10::ArrayRef<std::uint64_t> fresh) {
  return call.info.written != 0 || !fresh.empty();
}

// torch conjugates and negates by a bit of the tensor, which its bytes do not show.
bool any_bits(const Call& call) noexcept {
  for (const at::Tensor* tensor : call.tensors) {
    if (tensor->defined() && (tensor->is_conj() || tensor->is_neg())) return true;
  }
  return false;
}

}  // namespace

Follow what_follows(const Call& call) noexcept {
  if (call.info.written > (std::uint64_t{1} << 62)) return Follow::kNothing;
  const Operands operands = look_at(call);
  if (!operands.copied) return Follow::kNothing;
  if (operands.exact && !call.info.random) return Follow::kExact;
  if (any_bits(call)) return Follow::kNothing;
  return by_rule(call, operands);
}

void follow(Engine& engine, const Call& call, Follow how, const ShapeEntry& entry,
            torch::jit::Stack& results) {
  if (!makes_anything(call, entry.fresh)) return;
  if (how == Follow::kExact && largest_result(call, entry.fresh) > engine.value_bytes()) {
    how = by_rule(call, {.exact = false, .some = true});
  }
  switch (how) {
    case Follow::kNothing:
      return forget_written(call);
    case Follow::kRange:
      forget_written(call);
      return give_ranges(call, entry.outputs, results, 0);
    case Follow::kBounds:
      defer(call, entry.outputs, entry.fresh, results, false);
      // A second result is an index, of which the op knows more than its operands say.
      if (entry.outputs.size() > 1) give_ranges(call, entry.outputs, results, 1);
      return;
    case Follow::kExact:
      return defer(call, entry.outputs, entry.fresh, results, true);
  }
}

namespace {

// An op that was called by name, with its arguments.
struct NamedOp {
  explicit NamedOp(const char* name, const char* overload)
      : handle(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload)),
        info(describe(handle)) {}
  c10::OperatorHandle handle;
  OpInfo info;
};

void follow_write(Engine& engine, const NamedOp& op, c10::ArrayRef<c10::IValue> args) {
  Call call(op.handle, op.info, args);
  collect_tensors(call);
  torch::jit::Stack none;
  follow(engine, call, what_follows(call), ShapeEntry{}, none);
}

bool is_few(const Engine& engine, const at::Tensor& tensor) {
  return tensor.storage().nbytes() <= engine.value_bytes();
}

}  // namespace

void fill_values(Engine& engine, at::Tensor& tensor, const at::Scalar& number) {
  static const auto* const kFill = new NamedOp("aten::fill_", "Scalar");
  if (record_of(tensor) == nullptr) return;
  if (!covers_storage(tensor)) return follow_write(engine, *kFill, {tensor, number});
  value_slot(tensor) = Value::of_constant(number, tensor.scalar_type(), tensor.storage().nbytes(),
                                          is_few(engine, tensor));
}

void copy_values(Engine& engine, at::Tensor& tensor, const at::Tensor& source) {
  static const auto* const kCopy = new NamedOp("aten::copy_", "");
  if (record_of(tensor) == nullptr) return;
  const bool too_large =
      record_of(source) == nullptr && (!source.is_cpu() || source.nbytes() > engine.value_bytes());
  if (too_large ||
      (covers_storage(tensor) && !is_few(engine, tensor) && record_of(source) == nullptr)) {
    return forget_values(tensor);
  }
  follow_write(engine, *kCopy, {tensor, source, false});
}

}  // namespace peakline::vgpu
