// cuDNN's backend interface with engines that a test makes up. As the real one does, it copies what a
// descriptor is given.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "planner/cudnn_api.h"

namespace peakline::test {

struct FakeEngine {
  std::int64_t index = 0;
  std::vector<planner::NumericalNote> notes;
  std::string knobs = "{}";  // JSON
  std::int64_t workspace = 0;
  std::int64_t unsplit_workspace = 0;  // with knob WORKSPACE = 1
  bool runs = true;
};

struct FakeDescriptor {
  int kind = 0;
  std::map<int, std::vector<std::byte>> values;
  std::map<int, std::vector<FakeDescriptor>> parts;

  template <class T>
  [[nodiscard]] std::vector<T> read(planner::Attribute attribute) const {
    const auto found = values.find(static_cast<int>(attribute));
    if (found == values.end() || found->second.empty()) return {};
    std::vector<T> result(found->second.size() / sizeof(T));
    std::memcpy(result.data(), found->second.data(), found->second.size());
    return result;
  }
  [[nodiscard]] const FakeDescriptor& part(planner::Attribute attribute) const {
    return parts.at(static_cast<int>(attribute)).at(0);
  }
};

// One at a time: its functions have no other way to it.
class FakeCudnn {
 public:
  FakeCudnn() { current() = this; }
  FakeCudnn(const FakeCudnn&) = delete;
  FakeCudnn& operator=(const FakeCudnn&) = delete;
  ~FakeCudnn() { current() = nullptr; }

  std::vector<FakeEngine> instant;
  std::vector<FakeEngine> fallback;
  std::set<FakeDescriptor*> live;
  std::vector<FakeDescriptor> graphs;  // in the order they were made

  static planner::Api api() { return {&create, &destroy, &finalize, &set, &get, &version}; }

 private:
  using Attribute = planner::Attribute;
  using Kind = planner::Kind;
  using Type = planner::Type;
  static constexpr int kRefused = 3000;

  static FakeCudnn*& current() {
    static FakeCudnn* fake = nullptr;
    return fake;
  }
  static FakeDescriptor* of(const void* handle) {
    return static_cast<FakeDescriptor*>(const_cast<void*>(handle));
  }
  static bool is(const FakeDescriptor& d, Kind kind) { return d.kind == static_cast<int>(kind); }

  static int create(int kind, void** made) {
    auto* descriptor = new FakeDescriptor;
    descriptor->kind = kind;
    current()->live.insert(descriptor);
    *made = descriptor;
    return 0;
  }
  static int destroy(void* handle) {
    current()->live.erase(of(handle));
    delete of(handle);
    return 0;
  }

  static int finalize(void* handle) {
    const FakeDescriptor& d = *of(handle);
    if (is(d, Kind::kOperationGraph)) current()->graphs.push_back(d);
    if (is(d, Kind::kDeviceProperties)) {
      const auto json = d.read<char>(Attribute::kDeviceJson);
      return !json.empty() && json[0] == '{' ? 0 : kRefused;
    }
    if (is(d, Kind::kExecutionPlan)) return current()->engine_of_plan(d).runs ? 0 : kRefused;
    return 0;
  }

  static std::size_t size_of(int type) {
    switch (static_cast<Type>(type)) {
      case Type::kInt64:
        return sizeof(std::int64_t);
      case Type::kChar:
        return 1;
      default:
        return sizeof(int);
    }
  }

  static int set(void* handle, int attribute, int type, std::int64_t count, const void* values) {
    FakeDescriptor& d = *of(handle);
    const auto n = static_cast<std::size_t>(count);
    if (type == static_cast<int>(Type::kDescriptor)) {
      const auto* parts = static_cast<void* const*>(values);
      for (std::size_t i = 0; i < n; ++i) d.parts[attribute].push_back(*of(parts[i]));
      return 0;
    }
    const auto* bytes = static_cast<const std::byte*>(values);
    d.values[attribute].assign(bytes, bytes + n * size_of(type));
    return 0;
  }

  static int get(const void* handle, int attribute, int, std::int64_t room, std::int64_t* count,
                 void* values) {
    const FakeDescriptor& d = *of(handle);
    switch (static_cast<Attribute>(attribute)) {
      case Attribute::kHeuristicsResults:
        return current()->results(d, room, count, static_cast<void**>(values));
      case Attribute::kConfigEngine:
        *of(*static_cast<void**>(values)) = d.part(Attribute::kConfigEngine);
        return 0;
      case Attribute::kEngineNumericalNotes:
        return give(current()->engine(d).notes, room, count, values);
      case Attribute::kPlanWorkspace:
        return give(std::vector{current()->workspace(d)}, room, count, values);
      case Attribute::kPlanJson:
        return give(current()->json(d), room, count, values);
      default:
        return kRefused;
    }
  }

  template <class T>
  static int give(const T& found, std::int64_t room, std::int64_t* count, void* values) {
    *count = static_cast<std::int64_t>(found.size());
    const std::size_t given = std::min(found.size(), static_cast<std::size_t>(room));
    if (given > 0) std::memcpy(values, found.data(), given * sizeof(found[0]));
    return 0;
  }

  int results(const FakeDescriptor& heuristics, std::int64_t room, std::int64_t* count,
              void** configs) const {
    const auto mode = heuristics.read<int>(Attribute::kHeuristicsMode).at(0);
    const bool first = mode == static_cast<int>(planner::HeuristicMode::kInstant);
    const std::vector<FakeEngine>& engines = first ? instant : fallback;
    *count = static_cast<std::int64_t>(engines.size());
    for (std::size_t i = 0; i < std::min(engines.size(), static_cast<std::size_t>(room)); ++i) {
      FakeDescriptor made;
      made.kind = static_cast<int>(Kind::kEngine);
      const auto* bytes = reinterpret_cast<const std::byte*>(&engines[i].index);
      made.values[static_cast<int>(Attribute::kEngineIndex)].assign(bytes, bytes + 8);
      of(configs[i])->parts[static_cast<int>(Attribute::kConfigEngine)] = {made};
    }
    return 0;
  }

  [[nodiscard]] const FakeEngine& engine(const FakeDescriptor& d) const {
    const auto index = d.read<std::int64_t>(Attribute::kEngineIndex).at(0);
    for (const auto* engines : {&instant, &fallback}) {
      for (const FakeEngine& e : *engines) {
        if (e.index == index) return e;
      }
    }
    static const FakeEngine none{-1, {}, "{}", 0, 0, false};
    return none;
  }
  [[nodiscard]] const FakeEngine& engine_of_plan(const FakeDescriptor& plan) const {
    return engine(plan.part(Attribute::kPlanConfig).part(Attribute::kConfigEngine));
  }

  // The first config is cuDNN's own, and has no choices written down.
  [[nodiscard]] std::int64_t workspace(const FakeDescriptor& plan) const {
    const FakeEngine& e = engine_of_plan(plan);
    const FakeDescriptor& config = plan.part(Attribute::kPlanConfig);
    const auto choices = config.parts.find(static_cast<int>(Attribute::kConfigKnobChoices));
    if (choices == config.parts.end()) return e.workspace;
    for (const FakeDescriptor& choice : choices->second) {
      const auto type = choice.read<int>(Attribute::kKnobChoiceType).at(0);
      const auto value = choice.read<std::int64_t>(Attribute::kKnobChoiceValue).at(0);
      if (type == static_cast<int>(planner::Knob::kWorkspace) && value == 1) {
        return e.unsplit_workspace;
      }
    }
    return e.workspace;
  }
  [[nodiscard]] std::string json(const FakeDescriptor& plan) const {
    const FakeEngine& e = engine_of_plan(plan);
    return R"({"engine":{"engineId":)" + std::to_string(e.index) + R"(,"knobChoices":)" + e.knobs +
           "}}" + '\0';
  }

  static std::size_t version() { return 91900; }
};

}  // namespace peakline::test
