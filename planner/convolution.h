// Which kernel cuDNN would take for a convolution on a GPU that is not there.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "planner/cudnn_api.h"
#include "planner/descriptor.h"

namespace peakline::planner {

struct Convolution {
  Kind pass = Kind::kForward;
  DataType type = DataType::kFloat;
  bool channels_last = false;
  bool deterministic = false;
  bool allow_tf32 = true;
  std::vector<std::int64_t> input;  // batch, channels, then two or three dimensions
  std::vector<std::int64_t> weight;
  std::vector<std::int64_t> output;
  std::vector<std::int64_t> padding;
  std::vector<std::int64_t> stride;
  std::vector<std::int64_t> dilation;
};

struct Plan {
  std::int64_t engine = -1;
  std::int64_t workspace = 0;
  // Without the parts of a split last round, where the kernel has them: how many there are cannot be
  // known without a device.
  std::int64_t unsplit_workspace = 0;
  std::map<std::string, std::int64_t> knobs;  // by cuDNN's names, without their common beginning
};

class ConvolutionPlanner {
 public:
  // `device`: cuDNN's JSON of a GPU's properties.
  ConvolutionPlanner(const Api& api, const std::string& device);

  // The first plan that torch would find. Throws Refused when there is none.
  [[nodiscard]] Plan plan(const Convolution& convolution) const;

 private:
  [[nodiscard]] std::vector<Descriptor> configs(const Descriptor& graph, HeuristicMode mode) const;
  [[nodiscard]] bool allowed(const Descriptor& config, const Convolution& convolution) const;
  [[nodiscard]] Plan plan_of(const Descriptor& graph, const Descriptor& config) const;
  [[nodiscard]] std::int64_t unsplit(const Descriptor& graph, const Plan& plan) const;
  [[nodiscard]] Descriptor execution_plan(const Descriptor& config) const;

  const Api& api_;
  Descriptor device_;
};

}  // namespace peakline::planner
