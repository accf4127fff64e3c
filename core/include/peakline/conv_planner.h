// Who knows which kernel cuDNN takes for a convolution: cuDNN itself, when it is installed. It plans
// for a GPU that is described to it, and needs none.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <peakline/device_profile.h>
#include <peakline/dtype.h>

namespace peakline {

enum class ConvPass : std::uint8_t { kForward, kInputGradient, kWeightGradient };

// One pass of a convolution as cuDNN is given it: batch, channels, then two or three dimensions.
struct ConvQuery {
  ConvPass pass = ConvPass::kForward;
  DType dtype = DType::kFloat32;
  bool channels_last = false;
  bool deterministic = false;
  bool allow_tf32 = true;
  std::vector<std::int64_t> input;
  std::vector<std::int64_t> weight;
  std::vector<std::int64_t> output;
  std::vector<std::int64_t> padding;
  std::vector<std::int64_t> stride;
  std::vector<std::int64_t> dilation;
};

// The kernel, in cuDNN's words.
struct ConvPlan {
  std::int64_t engine = -1;
  std::int64_t workspace = 0;
  std::int64_t unsplit_workspace = 0;  // had the kernel been told not to split its last tiles
  std::map<std::string, std::int64_t> knobs;  // "TILE_SIZE", "WORKSPACE", …
};

// Whether a planner can be asked, and which cuDNN answers.
struct PlannerStatus {
  enum class State : std::uint8_t { kNotAsked, kWorks, kFailed, kClosed };
  State state = State::kNotAsked;
  std::string version;  // "9.19.0"; empty while it is not known
  std::string problem;  // of kFailed: what went wrong, in words
};

// Thread-safe.
class ConvPlanner {
 public:
  ConvPlanner() = default;
  ConvPlanner(const ConvPlanner&) = delete;
  ConvPlanner& operator=(const ConvPlanner&) = delete;
  virtual ~ConvPlanner() = default;

  // Nothing when cuDNN has no kernel for it, or cannot be asked.
  virtual std::optional<ConvPlan> plan(const ConvQuery& query) = 0;

  virtual PlannerStatus status() = 0;

  // Ends what runs for it; there are no plans afterwards.
  virtual void close() {}
};

// What the planner's process is made of.
struct PlannerFiles {
  std::string program;       // peakline-planner
  std::string cudnn_folder;  // where libcudnn.so.9 is
};

// A planner in a process of its own, which starts with the first question. Should it fail, once, it
// has ended, and there are no plans any more.
std::unique_ptr<ConvPlanner> planner_process(PlannerFiles files, const DeviceProfile& gpu);

}  // namespace peakline
