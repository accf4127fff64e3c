// cuDNN's workspaces for convolutions: a closed library, so this is a model of what it was seen to
// do (docs/accuracy.md). Its kernels work on channels-last data with whole vectors of channels;
// what lies otherwise is converted into the workspace.
#pragma once

#include <cstdint>

#include <peakline/kernel_memory.h>

namespace peakline::kernels {

enum class ConvPass : std::uint8_t { kForward, kInputGradient, kWeightGradient };

struct ConvProblem {
  DType dtype = DType::kFloat32;
  bool channels_last = false;
  std::int64_t batch = 1;
  std::int64_t in_channels = 1;
  std::int64_t out_channels = 1;
  std::int64_t groups = 1;
  std::int64_t in_pixels = 1;  // of one picture
  std::int64_t out_pixels = 1;
  std::int64_t kernel_pixels = 1;
  std::int64_t stride = 1;

  [[nodiscard]] bool depthwise() const { return groups > 1 && groups == in_channels; }
};

std::int64_t cudnn_conv_workspace(const ConvProblem& problem, ConvPass pass,
                                  const DeviceProfile& gpu, const KernelState& state);

}  // namespace peakline::kernels
