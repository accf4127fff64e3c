// Operator calls and allocation programs as short text, for tests of kernel rules.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include <peakline/kernel_memory.h>

namespace peakline::test {

using Sizes = std::vector<std::int64_t>;

inline constexpr DType kFp32 = DType::kFloat32;
inline constexpr DType kBf16 = DType::kBFloat16;
inline constexpr DType kInt64 = DType::kInt64;

inline TensorMeta tensor(Sizes sizes, DType dtype = kFp32, Sizes strides = {}) {
  TensorMeta meta;
  meta.dtype = dtype;
  if (strides.empty()) {
    strides.assign(sizes.size(), 1);
    for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  }
  meta.sizes = std::move(sizes);
  meta.strides = std::move(strides);
  return meta;
}

inline TensorMeta channels_last(Sizes s, DType dtype = kFp32) {
  return tensor(s, dtype, {s[1] * s[2] * s[3], 1, s[1] * s[3], s[1]});
}

inline TensorMeta none() {
  TensorMeta meta;
  meta.defined = false;
  return meta;
}

inline OpCall call(std::string_view name, std::vector<Argument> arguments,
                   std::vector<TensorMeta> outputs, std::string_view overload = "") {
  OpCall made;
  made.name = name;
  made.overload = overload;
  made.arguments = std::move(arguments);
  for (TensorMeta& output : outputs) {
    const bool fresh = output.defined;
    made.outputs.push_back({std::move(output), fresh});
  }
  return made;
}

// A convolution of `dimensions`, with the same settings in each.
inline Convolution convolution(std::size_t dimensions, std::int64_t stride, std::int64_t padding,
                               std::int64_t dilation = 1, std::int64_t groups = 1) {
  Convolution made;
  made.groups = groups;
  made.stride = Sizes(dimensions, stride);
  made.padding = Sizes(dimensions, padding);
  made.dilation = Sizes(dimensions, dilation);
  return made;
}

inline DeviceProfile h200() { return *load_profile("h200"); }

// "+4096 +64 -64 W33554432": outputs and scratch as the allocator sees them, workspaces by W.
inline std::string run(const OpCall& made, const DeviceProfile& gpu = h200(),
                       const KernelState& state = {}) {
  const AllocationProgram program = allocation_program(made, gpu, state);
  std::string text;
  std::vector<Bytes> scratch;
  for (const Step& step : program.steps) {
    if (!text.empty()) text += ' ';
    switch (step.kind) {
      case Step::Kind::kOutput: {
        const auto index = static_cast<std::size_t>(step.index);
        const Bytes bytes = step.bytes.raw() >= 0 ? step.bytes : made.outputs[index].meta.bytes();
        text += fmt::format("+{}", bytes.raw());
        break;
      }
      case Step::Kind::kAlloc:
        scratch.resize(std::max(scratch.size(), static_cast<std::size_t>(step.index) + 1));
        scratch[static_cast<std::size_t>(step.index)] = step.bytes;
        text += fmt::format("+{}", step.bytes.raw());
        break;
      case Step::Kind::kFree:
        text += fmt::format("-{}", scratch[static_cast<std::size_t>(step.index)].raw());
        break;
      case Step::Kind::kWorkspace:
        text += fmt::format("W{}", step.bytes.raw());
        break;
    }
  }
  return text;
}

}  // namespace peakline::test
