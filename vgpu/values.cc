#include "vgpu/values.h"

#include <ATen/ATen.h>

#include "vgpu/foreign_errors.h"
#include "vgpu/meta_run.h"
#include "vgpu/values/host_run.h"

namespace peakline::vgpu {
namespace {

std::uint64_t storage_size(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes();
}

at::Tensor view_of(const c10::Storage& bytes, const at::Tensor& like) {
  at::Tensor view =
      host_view(bytes, like.dtype(), like.sizes(), like.strides(), like.storage_offset());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) {
    view.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return view;
}

Known evaluated(const at::Tensor& tensor) {
  const StorageRecord* record = record_of(tensor);
  const ValuePtr value = record == nullptr ? ValuePtr() : record->value;
  if (!value) return {};
  Known known = value->evaluate();
  if (known.bounds && value->dtype() != tensor.scalar_type()) return {};
  return known;
}

Bounds view_of(const Bounds& bounds, const at::Tensor& tensor) {
  return bounds.map([&](const at::Tensor& numbers) {
    if (numbers.dim() == 0) return numbers;
    return numbers.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  });
}

bool is_assumed(const at::Tensor& tensor) {
  const StorageRecord* record = record_of(tensor);
  return record != nullptr && record->value && record->value->assumed();
}

}  // namespace

// What the bytes say of a tensor that is conjugated or negated by a bit of its own.
static at::Tensor with_bits(at::Tensor bytes, const at::Tensor& tensor) {
  if (!tensor.is_conj() && !tensor.is_neg()) return bytes;
  const HostRun host;
  if (tensor.is_conj()) bytes = at::conj_physical(bytes);
  return tensor.is_neg() ? bytes.neg() : bytes;
}

std::optional<at::Tensor> known_values(const at::Tensor& tensor) {
  if (record_of(tensor) == nullptr) {
    return tensor.is_cpu() ? std::optional<at::Tensor>(tensor) : std::nullopt;
  }
  if (tensor.numel() == 0) return at::empty(tensor.sizes(), at::dtype(tensor.dtype()));
  const Known known = evaluated(tensor);
  if (known.bytes) return with_bits(view_of(known.bytes, tensor), tensor);
  if (!known.bounds) return std::nullopt;
  const HostRun host;
  const Bounds bounds = view_of(*known.bounds, tensor);
  if (!bounds.is_fixed()) return std::nullopt;
  return bounds.low.to(tensor.scalar_type()).expand(tensor.sizes());
}

std::optional<Bounds> bounds_of(const at::Tensor& tensor) {
  if (!has_bounds(tensor.scalar_type())) return std::nullopt;
  const HostRun host;
  if (record_of(tensor) == nullptr) {
    return tensor.is_cpu() ? std::optional<Bounds>(fixed_bounds(tensor)) : std::nullopt;
  }
  const Known known = evaluated(tensor);
  if (known.bytes) return fixed_bounds(view_of(known.bytes, tensor));
  return view_of(known.bounds ? *known.bounds : unknown_bounds(tensor.scalar_type()), tensor);
}

at::Tensor answered_values(Engine& engine, const at::Tensor& tensor, const char* what,
                           Decides decides) {
  if (decides != Decides::kNothing && is_assumed(tensor)) engine.use_assumption();
  if (std::optional<at::Tensor> known = known_values(tensor)) return *known;
  engine.ask(what, decides);
  const HostRun host;
  const c10::ScalarType dtype = tensor.scalar_type();
  const std::optional<Bounds> bounds = bounds_of(tensor);
  if (!bounds) return at::full({}, engine.policy().number, dtype).expand(tensor.sizes());
  at::Tensor guess = bounds->guess;
  const std::optional<bool> truth = engine.policy().truth;
  if (dtype == at::kBool && truth) guess = *truth ? bounds->high : bounds->low;
  return guess.to(dtype).expand(tensor.sizes());
}

void give_values(Engine& engine, const at::Tensor& tensor, const at::Tensor& values) {
  StorageRecord* record = record_of(tensor);
  if (record == nullptr) return;
  record->value.reset();
  const std::uint64_t bytes = storage_size(tensor);
  if (bytes > engine.value_bytes()) return;
  const c10::Storage& from = values.unsafeGetTensorImpl()->unsafe_storage();
  const bool same_place = from.nbytes() == bytes && values.dtype() == tensor.dtype() &&
                          values.strides() == tensor.strides() &&
                          values.storage_offset() == tensor.storage_offset();
  if (same_place) {
    record->value = Value::of_bytes(from);
    return;
  }
  const HostRun host;
  const c10::Storage own = host_storage(bytes);  // nobody looks at what the tensor does not cover
  view_of(own, tensor).copy_(values);
  record->value = Value::of_bytes(own);
}

void assume(const at::Tensor& tensor) {
  StorageRecord* record = record_of(tensor);
  if (record != nullptr && record->value) record->value->set_assumed();
}

std::optional<ValueRun> run_on_values(Engine& engine, const Call& call) {
  ValueRun run;
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    const at::Tensor& tensor = *call.tensors[i];
    at::Tensor stand_in = tensor;
    if (record_of(tensor) != nullptr && call.only_writes(i)) {
      stand_in = at::empty({0}, at::dtype(tensor.dtype()));
    } else if (record_of(tensor) != nullptr) {
      const std::optional<at::Tensor> known = known_values(tensor);
      if (!known) return std::nullopt;
      stand_in = call.writes(i) ? known->clone() : *known;
    }
    run.stand_ins.push_back(stand_in);
  }
  const HostRun host;
  run.results =
      with_stand_ins(call, c10::Device(c10::kCPU),
                     [&](const at::Tensor&, std::size_t number) { return run.stand_ins[number]; });
  try {
    call.op.callBoxed(&run.results);
  } catch (const c10::Error&) {
    // Not for this type on a CPU, or wrong arguments, which the shape function reports better.
    return std::nullopt;
  } catch (const std::exception& error) {
    if (!forget_error(error)) throw;
    return std::nullopt;
  }
  engine.counters().values.fetch_add(1, std::memory_order_relaxed);
  return run;
}

namespace {

void keep_result(Engine& engine, const Output& output, const c10::IValue& computed,
                 c10::IValue& result) {
  if (output.kind == Output::Kind::kValue) {
    result = computed;
  } else if (output.kind == Output::Kind::kFresh && computed.isTensor() &&
             computed.toTensor().sizes() == result.toTensor().sizes()) {
    give_values(engine, result.toTensor(), computed.toTensor());
  } else if (output.kind == Output::Kind::kList) {
    const auto made = result.toListRef();
    const auto found = computed.toListRef();
    for (std::size_t i = 0; i < made.size(); ++i) {
      c10::IValue item = made[i];
      keep_result(engine, output.items[i], found[i], item);
    }
  }
}

}  // namespace

void keep_values(Engine& engine, const Call& call, const ShapeEntry& entry, const ValueRun& run,
                 torch::jit::Stack& results) {
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    at::Tensor tensor = *call.tensors[i];
    if (!call.writes(i) || record_of(tensor) == nullptr) continue;
    if (run.stand_ins[i].sizes() == tensor.sizes())
      copy_values(engine, tensor, run.stand_ins[i]);
    else
      forget_values(tensor);
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    keep_result(engine, entry.outputs[i], run.results[i], results[i]);
  }
}

}  // namespace peakline::vgpu
