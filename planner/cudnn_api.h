// The part of cuDNN's backend interface that planning needs: its functions, found in a library that
// is opened when it is there, and its numbers. cuDNN's headers need CUDA's; these need nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace peakline::planner {

enum class Kind : int {
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristics = 4,
  kExecutionPlan = 5,
  kKnobChoice = 7,
  kForward = 10,
  kWeightGradient = 11,
  kInputGradient = 12,
  kOperationGraph = 15,
  kTensor = 17,
  kDeviceProperties = 38,
};

enum class Type : int {
  kDataType = 1,
  kInt64 = 3,
  kFloat = 4,
  kConvolutionMode = 7,
  kHeuristicMode = 8,
  kKnobType = 9,
  kNumericalNote = 11,
  kDescriptor = 15,
  kChar = 24,
};

enum class Attribute : int {
  kConvolutionComputeType = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPostPaddings = 104,
  kConvolutionPrePaddings = 105,
  kConvolutionSpatialDims = 106,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kHeuristicsDevice = 204,
  kConfigEngine = 300,
  kConfigKnobChoices = 302,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kPlanJson = 405,
  kPlanDevice = 407,
  kKnobChoiceType = 600,
  kKnobChoiceValue = 601,
  kForwardAlpha = 700,         // then beta, convolution, weight, input, output
  kInputGradientAlpha = 706,   // the same order
  kWeightGradientAlpha = 712,  // the same order
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorDataType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
  kEngineNumericalNotes = 1303,
  kEngineDevice = 1307,
  kDeviceJson = 2702,
};

// cudnnDataType_t
enum class DataType : int { kFloat = 0, kDouble = 1, kHalf = 2, kBFloat16 = 9 };

// cudnnBackendHeurMode_t: what torch asks first, and when nothing of that runs.
enum class HeuristicMode : int { kInstant = 0, kFallback = 2 };

// cudnnBackendNumericalNote_t
enum class NumericalNote : int { kTensorCore = 0, kDownConverts = 1, kNondeterministic = 4 };
inline constexpr int kNumericalNotes = 10;

// cudnnBackendKnobType_t: of the kernels that split their last round of tiles.
enum class Knob : int {
  kTileSize = 2,
  kTileK = 13,
  kIndexMode = 18,
  kWorkspace = 25,
  kClusterM = 27,
  kClusterN = 28,
};

struct Api {
  int (*create)(int kind, void** descriptor) = nullptr;
  int (*destroy)(void* descriptor) = nullptr;
  int (*finalize)(void* descriptor) = nullptr;
  int (*set)(void* descriptor, int attribute, int type, std::int64_t count,
             const void* values) = nullptr;
  int (*get)(const void* descriptor, int attribute, int type, std::int64_t room,
             std::int64_t* count, void* values) = nullptr;
  std::size_t (*version)() = nullptr;
};

// Opens libcudnn in `folder`. `problem` says why not, and is empty when it worked. The library stays.
Api open_cudnn(const std::string& folder, std::string& problem);

}  // namespace peakline::planner
