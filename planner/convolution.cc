#include "planner/convolution.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace peakline::planner {
namespace {

using Sizes = std::vector<std::int64_t>;

// What the allocator gives is aligned to more than cuDNN asks for.
constexpr std::int64_t kAlignment = 32;

Sizes dense_strides(const Sizes& sizes, bool channels_last) {
  Sizes strides(sizes.size(), 1);
  std::int64_t step = 1;
  if (channels_last) {
    strides[1] = 1;
    step = sizes[1];
  }
  for (std::size_t i = sizes.size(); i-- > (channels_last ? 2U : 1U);) {
    strides[i] = step;
    step *= sizes[i];
  }
  strides[0] = step;
  return strides;
}

Descriptor tensor(const Api& api, char id, const Sizes& sizes, const Convolution& c) {
  Descriptor made(api, Kind::kTensor);
  made.set(Attribute::kTensorId, id);
  made.set(Attribute::kTensorDataType, Type::kDataType, std::vector<DataType>{c.type});
  made.set(Attribute::kTensorAlignment, kAlignment);
  made.set(Attribute::kTensorDimensions, Type::kInt64, sizes);
  made.set(Attribute::kTensorStrides, Type::kInt64, dense_strides(sizes, c.channels_last));
  made.finalize();
  return made;
}

Descriptor settings(const Api& api, const Convolution& c) {
  constexpr int kCrossCorrelation = 1;
  const DataType compute = c.type == DataType::kDouble ? DataType::kDouble : DataType::kFloat;
  Descriptor made(api, Kind::kConvolution);
  made.set(Attribute::kConvolutionComputeType, Type::kDataType, std::vector<DataType>{compute});
  made.set(Attribute::kConvolutionMode, Type::kConvolutionMode,
           std::vector<int>{kCrossCorrelation});
  made.set(Attribute::kConvolutionSpatialDims, static_cast<std::int64_t>(c.padding.size()));
  made.set(Attribute::kConvolutionDilations, Type::kInt64, c.dilation);
  made.set(Attribute::kConvolutionStrides, Type::kInt64, c.stride);
  made.set(Attribute::kConvolutionPrePaddings, Type::kInt64, c.padding);
  made.set(Attribute::kConvolutionPostPaddings, Type::kInt64, c.padding);
  made.finalize();
  return made;
}

// The attributes of the three passes stand in the same order, one set after the other.
Attribute attribute_of(Kind pass, int place) {
  const Attribute first = pass == Kind::kForward         ? Attribute::kForwardAlpha
                          : pass == Kind::kInputGradient ? Attribute::kInputGradientAlpha
                                                         : Attribute::kWeightGradientAlpha;
  return static_cast<Attribute>(static_cast<int>(first) + place);
}

Descriptor operation(const Api& api, const Convolution& c) {
  Descriptor made(api, c.pass);
  made.set(attribute_of(c.pass, 2), settings(api, c));
  made.set(attribute_of(c.pass, 3), tensor(api, 'w', c.weight, c));
  made.set(attribute_of(c.pass, 4), tensor(api, 'x', c.input, c));
  made.set(attribute_of(c.pass, 5), tensor(api, 'y', c.output, c));
  made.set(attribute_of(c.pass, 0), Type::kFloat, std::vector<float>{1});
  made.set(attribute_of(c.pass, 1), Type::kFloat, std::vector<float>{0});
  made.finalize();
  return made;
}

Descriptor graph_of(const Api& api, const Convolution& c) {
  Descriptor made(api, Kind::kOperationGraph);
  made.set(Attribute::kGraphOperations, operation(api, c));
  made.finalize();
  return made;
}

Descriptor device_of(const Api& api, const std::string& json) {
  Descriptor made(api, Kind::kDeviceProperties);
  made.set(Attribute::kDeviceJson, Type::kChar, std::vector<char>(json.begin(), json.end()));
  made.finalize();
  return made;
}

// A plan writes down its engine as JSON, which is the only way to its knobs.
void read_engine(const Descriptor& plan, Plan& result) {
  const std::int64_t size = plan.count(Attribute::kPlanJson, Type::kChar);
  std::string text(static_cast<std::size_t>(std::max<std::int64_t>(size, 0)), '\0');
  plan.get(Attribute::kPlanJson, Type::kChar, size, text.data());
  text.resize(std::min(text.size(), text.find('\0')));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto engine = json.find("engine");
  if (json.is_discarded() || engine == json.end() || !engine->is_object()) return;
  result.engine = engine->value("engineId", std::int64_t{-1});
  constexpr std::string_view kPrefix = "CUDNN_KNOB_TYPE_";
  const auto knobs = engine->value("knobChoices", nlohmann::json::object());
  for (const auto& [name, value] : knobs.items()) {
    if (name.starts_with(kPrefix) && value.is_number_integer()) {
      result.knobs[name.substr(kPrefix.size())] = value.get<std::int64_t>();
    }
  }
}

std::optional<Knob> knob_of(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, Knob>, 6> kKnobs{
      {{"TILE_SIZE", Knob::kTileSize},
       {"TILEK", Knob::kTileK},
       {"IDX_MODE", Knob::kIndexMode},
       {"WORKSPACE", Knob::kWorkspace},
       {"TILE_CGA_M", Knob::kClusterM},
       {"TILE_CGA_N", Knob::kClusterN}}};
  for (const auto& [known, knob] : kKnobs) {
    if (known == name) return knob;
  }
  return std::nullopt;
}

Descriptor knob_choice(const Api& api, Knob knob, std::int64_t value) {
  Descriptor made(api, Kind::kKnobChoice);
  made.set(Attribute::kKnobChoiceType, Type::kKnobType, std::vector<Knob>{knob});
  made.set(Attribute::kKnobChoiceValue, value);
  made.finalize();
  return made;
}

}  // namespace

ConvolutionPlanner::ConvolutionPlanner(const Api& api, const std::string& device)
    : api_(api), device_(device_of(api, device)) {}

std::vector<Descriptor> ConvolutionPlanner::configs(const Descriptor& graph,
                                                    HeuristicMode mode) const {
  Descriptor heuristics(api_, Kind::kEngineHeuristics);
  heuristics.set(Attribute::kHeuristicsGraph, graph);
  heuristics.set(Attribute::kHeuristicsMode, Type::kHeuristicMode,
                 std::vector<HeuristicMode>{mode});
  heuristics.set(Attribute::kHeuristicsDevice, device_);
  heuristics.finalize();
  const std::int64_t room = heuristics.count(Attribute::kHeuristicsResults, Type::kDescriptor);
  std::vector<Descriptor> found;
  std::vector<void*> handles;
  for (std::int64_t i = 0; i < room; ++i) {
    found.emplace_back(api_, Kind::kEngineConfig);
    handles.push_back(found.back().handle());
  }
  const std::int64_t count =
      heuristics.get(Attribute::kHeuristicsResults, Type::kDescriptor, room, handles.data());
  while (static_cast<std::int64_t>(found.size()) > count) found.pop_back();
  return found;
}

// torch's filter (aten/src/ATen/native/cudnn/Conv_v8.cpp, filterEngineConfigs).
bool ConvolutionPlanner::allowed(const Descriptor& config, const Convolution& c) const {
  Descriptor engine(api_, Kind::kEngine);
  void* handle = engine.handle();
  config.get(Attribute::kConfigEngine, Type::kDescriptor, 1, &handle);
  std::array<int, kNumericalNotes> notes{};
  const std::int64_t count = engine.get(Attribute::kEngineNumericalNotes, Type::kNumericalNote,
                                        kNumericalNotes, notes.data());
  const auto has = [&](NumericalNote note) {
    return std::find(notes.begin(), notes.begin() + count, static_cast<int>(note)) !=
           notes.begin() + count;
  };
  if (has(NumericalNote::kDownConverts)) return false;
  if (c.deterministic && has(NumericalNote::kNondeterministic)) return false;
  return c.allow_tf32 || c.type != DataType::kFloat || !has(NumericalNote::kTensorCore);
}

Descriptor ConvolutionPlanner::execution_plan(const Descriptor& config) const {
  Descriptor made(api_, Kind::kExecutionPlan);
  made.set(Attribute::kPlanDevice, device_);
  made.set(Attribute::kPlanConfig, config);
  made.finalize();
  return made;
}

Plan ConvolutionPlanner::plan_of(const Descriptor& graph, const Descriptor& config) const {
  const Descriptor made = execution_plan(config);
  Plan plan;
  made.get(Attribute::kPlanWorkspace, Type::kInt64, 1, &plan.workspace);
  plan.unsplit_workspace = plan.workspace;
  read_engine(made, plan);
  const auto splits = plan.knobs.find("WORKSPACE");
  if (plan.knobs.contains("TILE_CGA_M") && splits != plan.knobs.end() && splits->second == 0) {
    plan.unsplit_workspace = unsplit(graph, plan);
  }
  return plan;
}

// The same kernel, told not to split.
std::int64_t ConvolutionPlanner::unsplit(const Descriptor& graph, const Plan& plan) const {
  Descriptor engine(api_, Kind::kEngine);
  engine.set(Attribute::kEngineGraph, graph);
  engine.set(Attribute::kEngineIndex, plan.engine);
  engine.set(Attribute::kEngineDevice, device_);
  engine.finalize();
  std::vector<Descriptor> choices;
  for (const auto& [name, value] : plan.knobs) {
    const std::optional<Knob> knob = knob_of(name);
    if (!knob) return plan.workspace;
    choices.push_back(knob_choice(api_, *knob, *knob == Knob::kWorkspace ? 1 : value));
  }
  Descriptor config(api_, Kind::kEngineConfig);
  config.set(Attribute::kConfigEngine, engine);
  config.set(Attribute::kConfigKnobChoices, choices);
  config.finalize();
  std::int64_t bytes = 0;
  execution_plan(config).get(Attribute::kPlanWorkspace, Type::kInt64, 1, &bytes);
  return bytes;
}

Plan ConvolutionPlanner::plan(const Convolution& convolution) const {
  const Descriptor graph = graph_of(api_, convolution);
  Refused last{"no kernel"};
  for (const HeuristicMode mode : {HeuristicMode::kInstant, HeuristicMode::kFallback}) {
    for (const Descriptor& config : configs(graph, mode)) {
      try {
        if (allowed(config, convolution)) return plan_of(graph, config);
      } catch (const Refused& refused) {
        last = refused;
      }
    }
  }
  throw last;
}

}  // namespace peakline::planner
