// Asks torch's own shape functions what an op does.
#pragma once

#include "vgpu/call.h"
#include "vgpu/shape_cache.h"

namespace peakline::vgpu {

// Runs the op once on meta tensors and writes down what came out. Throws what torch throws for
// arguments that do not fit, and an error naming the op where torch has no shape function for it.
void run_on_meta(const Call& call, ShapeEntry& entry);

// Writes down results that were computed on stand-ins: `stand_ins` are the tensors that the op was
// given in place of the call's, `results` what it returned.
void describe_results(c10::ArrayRef<at::Tensor> stand_ins, c10::ArrayRef<c10::IValue> results,
                      ShapeEntry& entry);

// The arguments with every tensor replaced by `replace(tensor, number)`, and devices by `device`.
template <class Replace>
torch::jit::Stack with_stand_ins(const Call& call, c10::Device device, Replace&& replace) {
  torch::jit::Stack stack;
  stack.reserve(call.args.size());
  std::size_t number = 0;
  const c10::TypePtr optional_tensor = c10::OptionalType::ofTensor();
  for (const c10::IValue& value : call.args) {
    if (value.isTensor()) {
      stack.emplace_back(replace(value.toTensor(), number++));
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const c10::IValue& item : value.toListRef()) {
        list.push_back(replace(item.toTensor(), number++));
      }
      stack.emplace_back(std::move(list));
    } else if (value.isList() && value.toList().elementType()->isSubtypeOf(*optional_tensor)) {
      c10::List<std::optional<at::Tensor>> list;
      for (const c10::IValue& item : value.toListRef()) {
        if (item.isNone())
          list.push_back(std::nullopt);
        else
          list.push_back(replace(item.toTensor(), number++));
      }
      stack.emplace_back(std::move(list));
    } else if (value.isDevice()) {
      stack.emplace_back(device);
    } else {
      stack.emplace_back(value);
    }
  }
  return stack;
}

}  // namespace peakline::vgpu
