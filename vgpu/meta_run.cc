#include "vgpu/meta_run.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <unordered_map>

#include "vgpu/host_memory.h"
#include "vgpu/shape_builder.h"
#include "vgpu/shape_rules.h"

namespace peakline::vgpu {
namespace {

// Storages without bytes, one for each storage of the call, so that aliases stay aliases.
class MetaTensors {
 public:
  at::Tensor of(const at::Tensor& tensor) {
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    at::Tensor meta = at::detail::make_tensor<c10::TensorImpl>(
        storage_of(impl), c10::DispatchKeySet(c10::DispatchKey::Meta), impl.dtype());
    c10::TensorImpl* made = meta.unsafeGetTensorImpl();
    made->set_sizes_and_strides(impl.sizes(), impl.strides(), impl.storage_offset());
    if (impl.is_wrapped_number()) made->set_wrapped_number(true);
    return meta;
  }

 private:
  c10::Storage storage_of(const c10::TensorImpl& impl) {
    c10::StorageImpl* key = impl.unsafe_storage().unsafeGetStorageImpl();
    c10::Storage& storage = storages_[key];
    if (!storage) {
      storage = c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(),
          c10::SymInt(static_cast<std::int64_t>(key == nullptr ? 0 : key->nbytes())),
          c10::DataPtr(nullptr, c10::Device(c10::kMeta)), c10::GetAllocator(c10::kMeta), true);
    }
    return storage;
  }
  std::unordered_map<c10::StorageImpl*, c10::Storage> storages_;
};

class ResultReader {
 public:
  ResultReader(c10::ArrayRef<at::Tensor> stand_ins, ShapeEntry& entry)
      : stand_ins_(stand_ins), entry_(entry) {}

  Output read(const c10::IValue& value) {
    if (value.isTensor()) return read_tensor(value.toTensor());
    Output output;
    if (value.isTensorList()) {
      output.kind = Output::Kind::kList;
      for (const c10::IValue& item : value.toListRef()) {
        output.items.push_back(read_tensor(item.toTensor()));
      }
      return output;
    }
    output.kind = Output::Kind::kValue;
    output.value = value;
    return output;
  }

 private:
  Output read_tensor(const at::Tensor& tensor) {
    Output output;
    if (!tensor.defined()) return output;
    output.layout = layout_of(tensor);
    for (std::size_t i = 0; i < stand_ins_.size(); ++i) {
      if (!stand_ins_[i].is_same(tensor)) continue;
      output.kind = Output::Kind::kArgument;
      output.source = static_cast<int>(i);
      return output;
    }
    const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    for (std::size_t i = 0; i < stand_ins_.size(); ++i) {
      if (!stand_ins_[i].defined() || !stand_ins_[i].has_storage()) continue;
      if (stand_ins_[i].storage().unsafeGetStorageImpl() != storage) continue;
      output.kind = Output::Kind::kView;
      output.source = static_cast<int>(i);
      return output;
    }
    output.kind = Output::Kind::kFresh;
    output.source = fresh(*storage);
    return output;
  }

  int fresh(const c10::StorageImpl& storage) {
    const auto [slot, added] = fresh_.try_emplace(&storage, static_cast<int>(fresh_.size()));
    if (added) entry_.fresh.push_back(storage.nbytes());
    return slot->second;
  }

  c10::ArrayRef<at::Tensor> stand_ins_;
  ShapeEntry& entry_;
  std::unordered_map<const c10::StorageImpl*, int> fresh_;
};

void check_devices(const Call& call) {
  for (const at::Tensor* tensor : call.tensors) {
    if (!tensor->defined() || call.info.mixes_devices) continue;
    const bool is_scalar = tensor->dim() == 0 && tensor->is_cpu();
    if (is_scalar || (is_virtual(*tensor) && tensor->device().index() == call.device)) continue;
    if (call.device == kHost && tensor->is_cpu()) continue;
    TORCH_CHECK(tensor->is_meta(),
                "Expected all tensors to be on the same device, but found at least two devices, ",
                call.device == kHost ? "cpu" : "cuda:" + std::to_string(call.device), " and ",
                tensor->device(), "! (when running ", call.info.full_name, " on the virtual GPU)");
  }
}

// What a schema declares as new is new, whatever a fake returns: `return x.contiguous()` is its own
// argument, where the kernel that it stands for makes a tensor.
void renew(const Call& call, ShapeEntry& entry) {
  const std::vector<c10::Argument>& returns = call.op.schema().returns();
  if (call.info.name.text.starts_with("aten::") || returns.size() != entry.outputs.size()) return;
  for (std::size_t i = 0; i < returns.size(); ++i) {
    Output& output = entry.outputs[i];
    const bool is_old =
        output.kind == Output::Kind::kArgument || output.kind == Output::Kind::kView;
    if (!is_old || returns[i].alias_info() != nullptr) continue;
    output.kind = Output::Kind::kFresh;
    output.source = static_cast<int>(entry.fresh.size());
    output.layout.offset = 0;
    entry.fresh.push_back(
        storage_bytes(output.layout.sizes, output.layout.strides, output.layout.dtype.itemsize()));
  }
}

void find_resized(const Call& call, c10::ArrayRef<at::Tensor> metas, ShapeEntry& entry) {
  for (std::size_t i = 0; i < metas.size(); ++i) {
    if (!call.writes(i) || !metas[i].defined()) continue;
    const at::Tensor& before = *call.tensors[i];
    if (metas[i].sizes() == before.sizes() && metas[i].strides() == before.strides()) continue;
    entry.resized.push_back({static_cast<int>(i),
                             Dims(metas[i].sizes().begin(), metas[i].sizes().end()),
                             Dims(metas[i].strides().begin(), metas[i].strides().end())});
  }
}

// The lines that would let the op run: its fake, with the names of its arguments.
std::string register_fake_lines(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  std::string arguments;
  std::string like = "...";
  for (const c10::Argument& argument : schema.arguments()) {
    arguments += (arguments.empty() ? "" : ", ") + argument.name();
    const bool is_tensor = argument.type()->kind() == c10::TypeKind::TensorType;
    if (is_tensor && like == "...") like = argument.name();
  }
  std::string result = "None";
  if (schema.returns().size() == 1) result = "torch.empty_like(" + like + ")";
  if (schema.returns().size() > 1) result = "...  # a tuple of tensors with the results' shapes";
  return "\n    @torch.library.register_fake(\"" + schema.name() + "\")\n    def _(" + arguments +
         "):\n        return " + result;
}

// Whether a rule of ours knows what torch does not.
bool found_without_torch(const Call& call, ShapeEntry& entry) {
  const ShapeRule rule = rule_without_python(call.info.full_name);
  ShapeBuilder builder(entry);
  return rule != nullptr && rule(call, builder);
}

// "aten::mm.out" without its out=: aten::mm.
std::optional<c10::OperatorHandle> without_out(const c10::OperatorHandle& op) {
  constexpr std::string_view kOut = "out";
  std::string overload = op.schema().overload_name();
  if (!overload.ends_with(kOut)) return std::nullopt;
  overload.resize(overload.size() - kOut.size());
  if (overload.ends_with('_')) overload.pop_back();
  return c10::Dispatcher::singleton().findSchema({op.schema().name(), overload});
}

// For many an op torch has no shape function with out=, and one without: that one says the sizes.
bool sized_without_out(const Call& call, const torch::jit::Stack& arguments,
                       c10::ArrayRef<at::Tensor> stand_ins, torch::jit::Stack& results) {
  const std::optional<c10::OperatorHandle> op = without_out(call.op);
  if (!op) return false;
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (i >= 64 || (call.info.only_written >> i & 1) == 0) stack.push_back(arguments[i]);
  }
  if (stack.size() != op->schema().arguments().size()) return false;
  try {
    const at::AutoDispatchBelowADInplaceOrView below;
    op->callBoxed(&stack);
  } catch (const c10::NotImplementedError&) {
    return false;
  }
  results.clear();
  for (std::size_t i = 0; i < stand_ins.size(); ++i) {
    if (!call.only_writes(i)) continue;
    const std::size_t number = results.size();
    if (number >= stack.size() || !stack[number].isTensor()) return false;
    const at::Tensor& found = stack[number].toTensor();
    if (found.sizes() != stand_ins[i].sizes()) {
      stand_ins[i].unsafeGetTensorImpl()->set_sizes_and_strides(found.sizes(), found.strides());
    }
    results.emplace_back(stand_ins[i]);
  }
  return results.size() == stack.size();
}

[[noreturn]] void refuse(const Call& call) {
  const std::string name = call.op.schema().name();
  TORCH_CHECK_NOT_IMPLEMENTED(
      name.starts_with("aten::"), "peakline's virtual GPU cannot run ", call.info.full_name,
      ", because nothing tells the shapes of its results; these lines do, in the program or in a "
      "file given with --fakes:",
      register_fake_lines(call.op));
  TORCH_CHECK_NOT_IMPLEMENTED(false, "peakline's virtual GPU cannot run ", call.info.full_name,
                              ": torch has no shape function for it");
}

}  // namespace

void describe_results(c10::ArrayRef<at::Tensor> stand_ins, c10::ArrayRef<c10::IValue> results,
                      ShapeEntry& entry) {
  ResultReader reader(stand_ins, entry);
  for (const c10::IValue& value : results) entry.outputs.push_back(reader.read(value));
}

void run_on_meta(const Call& call, ShapeEntry& entry) {
  check_devices(call);
  MetaTensors metas;
  c10::SmallVector<at::Tensor, 16> stand_ins;
  torch::jit::Stack stack = with_stand_ins(
      call, c10::Device(c10::kMeta), [&](const at::Tensor& tensor, std::size_t) -> at::Tensor {
        // A number in host memory may be read by the shape function.
        const bool as_it_is = !tensor.defined() || (tensor.is_cpu() && tensor.dim() == 0 &&
                                                    record_of(tensor) == nullptr);
        stand_ins.push_back(as_it_is ? tensor : metas.of(tensor));
        return stand_ins.back();
      });
  torch::jit::Stack arguments;
  if (call.info.only_written != 0) arguments = stack;
  try {
    const at::AutoDispatchBelowADInplaceOrView below;
    if (call.info.shapes != nullptr) {
      call.info.shapes->callBoxed(call.op, c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
    } else {
      call.op.callBoxed(&stack);
    }
  } catch (const c10::NotImplementedError&) {
    if (found_without_torch(call, entry)) return;
    if (!sized_without_out(call, arguments, stand_ins, stack)) refuse(call);
  }
  describe_results(stand_ins, stack, entry);
  renew(call, entry);
  find_resized(call, stand_ins, entry);
}

}  // namespace peakline::vgpu
