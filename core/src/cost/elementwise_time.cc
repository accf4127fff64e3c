// One loop over elements: bound by what it moves, or by what it computes for each element.
#include <array>

#include "cost/rules.h"

namespace peakline::cost {
namespace {

// Instructions of a thread for one element, in the kernel with wide loads: those that reach the
// arithmetic before the memory. The others are memory's, and cost what a load and a store do.
struct Work {
  std::string_view name;
  double instructions;
};
constexpr double kPlain = 14;
constexpr std::array<Work, 17> kWork{{
    {"gelu", 37},
    {"gelu_backward", 50},
    {"silu", 30},
    {"silu_backward", 42},
    {"native_dropout", 49},
    {"bernoulli", 55},
    {"uniform", 45},
    {"normal", 70},
    {"random", 45},
    {"where", 46},
    {"masked_fill", 46},
    {"pow", 40},
    {"sigmoid", 28},
    {"tanh", 30},
    {"erf", 34},
    {"lerp", 20},
    {"roll", 135},
}};
// Addresses are computed for each operand where shapes differ, or layouts do.
constexpr double kAddresses = 71;
// Types that differ are converted one element at a time, but for copies of floats to 16 bits, which
// have a kernel with wide loads.
constexpr double kConversion = 84;
// A transposed operand brings a whole sector of memory for one element.
constexpr double kSector = 32;

double work_of(std::string_view name) {
  for (const Work& work : kWork) {
    if (work.name == name) return work.instructions;
  }
  return kPlain;
}

template <class Visit>
void each_tensor(const OpCall& call, Visit&& visit) {
  for (const Argument& argument : call.arguments) {
    if (const auto* tensor = std::get_if<TensorMeta>(&argument)) {
      if (tensor->defined) visit(*tensor);
    } else if (const auto* list = std::get_if<std::vector<TensorMeta>>(&argument)) {
      for (const TensorMeta& item : *list) {
        if (item.defined) visit(item);
      }
    }
  }
}

// The dimension that lies innermost, among those with more than one element; -1: none.
int innermost(const TensorMeta& tensor) {
  int found = -1;
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
    if (tensor.sizes[i] > 1 && tensor.strides[i] == 1) found = static_cast<int>(i);
  }
  return found;
}

// Neighbours of the result lie apart in the operand, so each brings a whole sector. An operand that is
// broadcast along them brings one for many.
bool lies_across(const TensorMeta& operand, const TensorMeta& result) {
  const int inner = innermost(result);
  if (inner < 0 || operand.sizes.size() != result.sizes.size()) return false;
  const auto at = static_cast<std::size_t>(inner);
  if (operand.sizes[at] <= 1) return false;
  return static_cast<double>(operand.strides[at]) * static_cast<double>(size_of(operand.dtype)) >=
         kSector;
}

bool narrows(std::string_view name, const TensorMeta& from, const TensorMeta& to) {
  const bool copies = name == "_to_copy" || name == "copy";
  const bool half = to.dtype == DType::kBFloat16 || to.dtype == DType::kFloat16;
  return copies && half && from.dtype == DType::kFloat32;
}

struct Shape {
  double elements = 0;  // of the result
  bool addresses = false;
  bool converts = false;
  bool transposed = false;
};

Shape shape_of(const CallView& view) {
  Shape shape;
  const TensorMeta& first = view.args.out(0).defined ? view.args.out(0) : view.args.tensor(0);
  shape.elements = static_cast<double>(first.numel());
  each_tensor(view.call, [&](const TensorMeta& tensor) {
    if (tensor.numel() <= 1 || !tensor.on_gpu) return;
    shape.elements = std::max(shape.elements, static_cast<double>(tensor.numel()));
    if (tensor.dtype != first.dtype && tensor.dtype != DType::kBool) {
      shape.converts = shape.converts || !narrows(view.name, tensor, first);
    }
    if (tensor.sizes != first.sizes || tensor.strides != first.strides) shape.addresses = true;
    shape.transposed = shape.transposed || lies_across(tensor, first);
  });
  return shape;
}

// The list and the result of aten::cat, moved in wide words where rows allow it.
void add_cat(const CallView& view, OpTimer& op) {
  const TensorMeta& out = view.args.out(0);
  const double bytes = 2 * bytes_written(view);
  const bool wide = out.sizes.empty() || (out.sizes.back() * size_of(out.dtype)) % 16 == 0;
  op.add({.compute_us =
              op.machine().instructions_us(static_cast<double>(out.numel()) * (wide ? 20 : 60)),
          .memory_us = op.machine().memory_us(bytes)},
         bytes);
}

bool only_writes(std::string_view name) {
  static constexpr std::array<std::string_view, 14> kNames{
      "fill",    "zero",   "zeros",  "ones",      "full",       "arange",    "linspace",
      "uniform", "normal", "random", "bernoulli", "zeros_like", "ones_like", "full_like"};
  for (const std::string_view known : kNames) {
    if (known == name) return true;
  }
  return false;
}

}  // namespace

double distinct_bytes(const TensorMeta& tensor) {
  if (!tensor.defined) return 0;
  double count = 1;
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
    if (i >= tensor.strides.size() || tensor.strides[i] != 0 || tensor.sizes[i] == 0) {
      count *= static_cast<double>(tensor.sizes[i]);
    }
  }
  return count * static_cast<double>(size_of(tensor.dtype));
}

double bytes_read(const CallView& view) {
  double bytes = 0;
  each_tensor(view.call, [&](const TensorMeta& tensor) {
    if (tensor.on_gpu) bytes += distinct_bytes(tensor);
  });
  return bytes;
}

double bytes_written(const CallView& view) {
  double bytes = 0;
  for (const OpCall::Output& output : view.call.outputs) {
    if (output.meta.defined) bytes += distinct_bytes(output.meta);
  }
  if (bytes > 0 || !view.in_place) return bytes;
  // An op that returns nothing writes to what it was given first.
  bytes = distinct_bytes(view.args.tensor(0));
  for (const TensorMeta& tensor : view.args.tensors(0)) bytes += distinct_bytes(tensor);
  return bytes;
}

void elementwise_rule(const CallView& view, OpTimer& op) {
  const Machine& machine = op.machine();
  if (view.name == "cat" || view.name == "stack" || view.name == "_foreach_copy") {
    return add_cat(view, op);
  }
  const Shape shape = shape_of(view);
  if (shape.elements <= 0) return;
  const double read = only_writes(view.name) ? 0 : bytes_read(view);
  // copy_ does not read what it writes to.
  const double own = view.name == "copy" ? bytes_written(view) : 0;
  double bytes = std::max(0.0, read - own) + bytes_written(view);
  double instructions = work_of(view.name);
  if (shape.addresses) instructions = std::max(instructions, kAddresses);
  if (shape.converts) instructions = std::max(instructions, kConversion);
  // Random numbers come four at a time, and a thread's loads wait for them.
  const bool random = view.name == "native_dropout";
  double memory = random ? machine.row_memory_us(bytes) : machine.memory_us(bytes);
  if (shape.transposed) {
    memory = std::max(memory, machine.memory_us(shape.elements * kSector, 1e18));
  }
  op.add(
      {.compute_us = machine.instructions_us(shape.elements * instructions), .memory_us = memory},
      bytes);
}

}  // namespace peakline::cost
