// One call of an op on the virtual GPU, taken apart.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

#include "vgpu/tensor.h"

namespace peakline::vgpu {

class ShapeBuilder;
struct Call;
struct ValueRule;

// Says what an op gives, where torch has no shape function in C++ that could be asked. False: it
// does not apply to these arguments.
using ShapeRule = bool (*)(const Call& call, ShapeBuilder& out);

// What is known of an op from its schema.
struct OpInfo {
  OpName name;            // "aten::add"
  std::string full_name;  // "aten::add.Tensor"
  std::uint32_t arity = 0;
  std::uint64_t written = 0;       // arguments the op writes to, as bits
  std::uint64_t only_written = 0;  // thereof those it does not read (out=)
  bool random = false;
  bool dynamic = false;           // sizes of the outputs depend on values
  bool gives_values = false;      // it returns something that is not a tensor and depends on values
  bool view = false;              // an output is a view of an argument
  bool changes_in_place = false;  // it returns its first argument, of the same sizes, or nothing
  bool takes_masks = false;       // sizes depend on values where an index is a mask
  bool counts_versions = false;   // its CUDA kernel itself tells autograd of the change
  bool mixes_devices = false;     // takes host tensors of any size beside the GPU's
  bool elementwise = false;       // torch declares it as one loop over elements, or as a view
  bool has_kernel_rule = false;   // what it allocates may depend on switches
  ShapeRule rule = nullptr;
  const ValueRule* value_rule = nullptr;        // what follows where not all operands are known
  const c10::KernelFunction* shapes = nullptr;  // torch's own, in C++
};

struct Call {
  const c10::OperatorHandle& op;
  const OpInfo& info;
  c10::ArrayRef<c10::IValue> args;
  c10::SmallVector<const at::Tensor*, 16> tensors;  // in order, lists flattened
  c10::SmallVector<std::uint8_t, 16> argument_of;   // which argument each belongs to
  int device = -1;                                  // of the first virtual tensor; -1: none

  Call(const c10::OperatorHandle& handle, const OpInfo& op_info, c10::ArrayRef<c10::IValue> values)
      : op(handle), info(op_info), args(values) {}

  [[nodiscard]] bool writes(std::size_t tensor) const noexcept {
    return (info.written >> argument_of[tensor] & 1) != 0;
  }
  [[nodiscard]] bool only_writes(std::size_t tensor) const noexcept {
    return (info.only_written >> argument_of[tensor] & 1) != 0;
  }
};

// The tensors among the arguments of `call`, and its device.
void collect_tensors(Call& call);

// Whether what the op gives depends on more than the layout of its arguments.
bool depends_on_values(const Call& call);

OpInfo describe(const c10::OperatorHandle& op);

}  // namespace peakline::vgpu
