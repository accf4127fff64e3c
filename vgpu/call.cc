#include "vgpu/call.h"

#include <iterator>
#include <string>
#include <string_view>
#include <unordered_set>

#include <peakline/kernel_memory.h>

#include "vgpu/shape_functions.h"
#include "vgpu/values/value_rules.h"

namespace peakline::vgpu {
namespace {

void collect(Call& call, const c10::IValue& value, std::uint8_t argument) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    call.tensors.push_back(&tensor);
    call.argument_of.push_back(argument);
    if (call.device < 0 && is_virtual(tensor)) {
      call.device = static_cast<int>(tensor.device().index());
    }
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) {
      if (item.isTensor())
        collect(call, item, argument);
      else if (!item.isNone())
        return;  // a list of something else
    }
  }
}

// Ops that take indices, lengths and the like from host memory as well.
bool takes_host_tensors(std::string_view name) {
  static constexpr std::string_view kNames[] = {"aten::index",
                                                "aten::index_put_",
                                                "aten::_index_put_impl_",
                                                "aten::_unsafe_index",
                                                "aten::index_put",
                                                "aten::_cudnn_rnn",
                                                "aten::_cudnn_rnn_backward",
                                                "aten::_fused_adam_",
                                                "aten::_fused_adamw_",
                                                "aten::_fused_sgd_",
                                                "aten::_fused_adagrad_",
                                                "aten::_pack_padded_sequence"};
  for (const std::string_view known : kNames) {
    if (known == name) return true;
  }
  return name.starts_with("aten::_foreach_");
}

// Ops that torch declares as one loop of its TensorIterator ("structured_inherits").
bool is_iterator_op(const std::string& full_name) {
  static constexpr const char* kNames[] = {
#include "iterator_ops.inc"
  };
  static const auto* const kSet =
      new std::unordered_set<std::string>(std::begin(kNames), std::end(kNames));
  return kSet->contains(full_name);
}

}  // namespace

void collect_tensors(Call& call) {
  for (std::size_t i = 0; i < call.args.size(); ++i) {
    collect(call, call.args[i], static_cast<std::uint8_t>(i < 63 ? i : 63));
  }
}

bool depends_on_values(const Call& call) {
  if (call.info.dynamic || call.info.gives_values) return true;
  if (!call.info.takes_masks) return false;
  for (std::size_t i = 1; i < call.tensors.size(); ++i) {
    if (!call.tensors[i]->defined()) continue;
    const c10::ScalarType type = call.tensors[i]->scalar_type();
    if (type == c10::kBool || type == c10::kByte) return true;
  }
  return false;
}

OpInfo describe(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  OpInfo info;
  info.name.text = schema.name();
  info.full_name = schema.name();
  if (!schema.overload_name().empty()) info.full_name += "." + schema.overload_name();
  info.arity = static_cast<std::uint32_t>(schema.arguments().size());
  for (std::size_t i = 0; i < schema.arguments().size() && i < 64; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (argument.alias_info() == nullptr || !argument.alias_info()->isWrite()) continue;
    info.written |= std::uint64_t{1} << i;
    if (argument.kwarg_only()) info.only_written |= std::uint64_t{1} << i;
  }
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) info.view = true;
  }
  info.random = op.hasTag(at::Tag::nondeterministic_seeded);
  info.dynamic = op.hasTag(at::Tag::dynamic_output_shape);
  info.gives_values = op.hasTag(at::Tag::data_dependent_output);
  const bool writes_first_only = info.written == 1 && info.only_written == 0;
  const bool returns_it =
      schema.returns().empty() ||
      (schema.returns().size() == 1 && schema.returns()[0].alias_info() != nullptr &&
       schema.returns()[0].alias_info()->isWrite());
  info.changes_in_place = writes_first_only && returns_it;
  if (schema.returns().empty() && info.written != 0 && info.only_written == 0) {
    info.changes_in_place = true;
  }
  info.takes_masks =
      info.full_name == "aten::index.Tensor" || info.full_name == "aten::_unsafe_index.Tensor";
  if (info.takes_masks) info.dynamic = false;
  info.counts_versions = info.changes_in_place && schema.name().starts_with("aten::_foreach_");
  info.shapes = shape_function(info.full_name);
  info.value_rule = value_rule(info.name.text);
  info.mixes_devices = takes_host_tensors(schema.name());
  info.elementwise = info.view || op.hasTag(at::Tag::pointwise) || is_iterator_op(info.full_name);
  info.has_kernel_rule = has_kernel_rule(schema.name());
  return info;
}

}  // namespace peakline::vgpu
