// cuDNN's workspaces for convolutions where cuDNN itself is not there to be asked: a closed library, so
// this is a model of what it was seen to do on an H200 (docs/accuracy.md). Its kernels work on
// channels-last data with whole vectors of channels; what lies otherwise is converted into the
// workspace.
#pragma once

#include <cstdint>

#include <peakline/conv_planner.h>
#include <peakline/kernel_memory.h>

namespace peakline::kernels {

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
  bool patches = false;  // windows beside each other: the stride is the window's size
  bool unusual = false;  // three dimensions, dilation, transposed: never or hardly measured

  [[nodiscard]] bool depthwise() const { return groups > 1 && groups == in_channels; }
  [[nodiscard]] bool half() const { return is_reduced_float(dtype); }
};

struct ConvWorkspace {
  std::int64_t bytes = 0;
  Certainty certainty = Certainty::kModelled;
};

ConvWorkspace cudnn_conv_workspace(const ConvProblem& problem, ConvPass pass,
                                   const DeviceProfile& gpu);

// Partial gradients of a weight with this many input channels a group and so many outputs: the sum
// over pixels is split so that all SMs have work, and the parts are added in float.
std::int64_t split_weight_gradient(const ConvProblem& problem, const DeviceProfile& gpu);

// The same where it is one product over all pixels, which cuBLASLt splits: into what fits a few MiB,
// or, given plenty of them, into as many parts as help.
std::int64_t split_product(const ConvProblem& problem, bool plenty, const DeviceProfile& gpu);

}  // namespace peakline::kernels
