#include "vgpu/values/computation.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "vgpu/meta_run.h"
#include "vgpu/shape_builder.h"
#include "vgpu/values/host_run.h"

namespace peakline::vgpu {

Computation::Computation(const Call& call, c10::ArrayRef<Output> outputs,
                         c10::ArrayRef<std::uint64_t> fresh_bytes, const ValueRule* rule,
                         bool exact)
    : op_(call.op), info_(call.info), rule_(rule), exact_(exact) {
  args_ = with_stand_ins(call, c10::Device(c10::kCPU),
                         [](const at::Tensor&, std::size_t) { return at::Tensor(); });
  for (std::size_t i = 0; i < call.tensors.size(); ++i) add_operand(call, i);
  for (const std::uint64_t bytes : fresh_bytes) slots_.push_back({bytes, c10::kByte, -1, {}});
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const int result = static_cast<int>(i);
    add_part(outputs[i], result, -1);
    for (std::size_t j = 0; j < outputs[i].items.size(); ++j) {
      add_part(outputs[i].items[j], result, static_cast<int>(j));
    }
  }
  add_written();
  measure();
  storages_.clear();
}

int Computation::source_of(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  const c10::StorageImpl* key = storage.unsafeGetStorageImpl();
  const auto found = std::ranges::find(storages_, key);
  if (found != storages_.end()) return static_cast<int>(found - storages_.begin());
  storages_.push_back(key);
  sources_.push_back({record_of(tensor)->value, storage.nbytes(), false, -1});
  return static_cast<int>(sources_.size()) - 1;
}

void Computation::add_operand(const Call& call, std::size_t number) {
  const at::Tensor& tensor = *call.tensors[number];
  Operand& operand = operands_.emplace_back();
  if (!tensor.defined()) return;
  operand.layout = layout_of(tensor);
  operand.argument = call.argument_of[number];
  operand.wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  operand.conjugated = tensor.is_conj();
  operand.negated = tensor.is_neg();
  if (record_of(tensor) == nullptr) {
    const HostRun host;
    operand.host = tensor.clone();  // the program may write to it before anybody asks
    if (operand.wrapped_number) operand.host.unsafeGetTensorImpl()->set_wrapped_number(true);
    return;
  }
  operand.source = source_of(tensor);
  operand.only_written = call.only_writes(number);
  Source& source = sources_[static_cast<std::size_t>(operand.source)];
  operand.covers = covers_storage(tensor);
  const bool overwritten =
      operand.covers &&
      (operand.only_written || (rule_ != nullptr && rule_->overwrites && number == 0));
  if (!overwritten) source.read = true;
  if (call.writes(number) && source.slot < 0) source.slot = 0;  // numbered by add_written()
}

void Computation::add_part(const Output& output, int result, int item) {
  if (output.kind != Output::Kind::kFresh) return;
  Slot& slot = slots_[static_cast<std::size_t>(output.source)];
  slot.dtype = output.layout.dtype.toScalarType();
  slot.parts.push_back({result, item, -1, output.layout});
}

void Computation::add_written() {
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    Source& source = sources_[i];
    if (!source.read) source.value.reset();
    if (source.slot < 0) continue;
    source.slot = static_cast<int>(slots_.size());
    slots_.push_back({source.bytes, c10::kByte, static_cast<int>(i), {}});
  }
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const Operand& operand = operands_[i];
    if (operand.source < 0) continue;
    const Source& source = sources_[static_cast<std::size_t>(operand.source)];
    if (source.slot < 0) continue;
    Slot& slot = slots_[static_cast<std::size_t>(source.slot)];
    slot.dtype = operand.layout.dtype.toScalarType();
    slot.parts.push_back({-1, -1, static_cast<int>(i), operand.layout});
  }
}

void Computation::measure() {
  const bool moves = rule_ != nullptr && (rule_->kind == ValueRule::Kind::kMove ||
                                          rule_->kind == ValueRule::Kind::kConvert);
  for (const Source& source : sources_) {
    if (!source.value) continue;
    depth_ = std::max(depth_, source.value->depth() + 1);
    held_ += source.value->held();
    assumed_ |= source.value->assumed();
    moves_picks_ |= source.value->picked();
  }
  for (const Operand& operand : operands_) {
    if (operand.host.defined()) held_ += operand.host.nbytes();
  }
  moves_picks_ &= moves;
}

torch::jit::Stack Computation::call(c10::ArrayRef<at::Tensor> stand_ins, bool in_own_type) const {
  const Call call(op_, info_, args_);
  torch::jit::Stack stack =
      with_stand_ins(call, c10::Device(c10::kCPU),
                     [&](const at::Tensor&, std::size_t number) { return stand_ins[number]; });
  if (!in_own_type) {
    const std::optional<int> dtype = op_.schema().argumentIndexWithName("dtype");
    if (dtype) stack[static_cast<std::size_t>(*dtype)] = c10::IValue();
  }
  op_.callBoxed(&stack);
  return stack;
}

const Known& Computation::result(int slot) {
  if (!done_) {
    done_ = true;
    try {
      if (exact_) results_ = compute_exactly(*this);
      if (results_.empty() && rule_ != nullptr) results_ = compute_bounds(*this);
    } catch (const c10::Error&) {
      results_.clear();  // not for this type on a CPU, or for numbers that stand for others
    }
    results_.resize(slots_.size());
    sources_.clear();
    operands_.clear();
    args_.clear();
  }
  return results_[static_cast<std::size_t>(slot)];
}

}  // namespace peakline::vgpu
