// What a first read of a recording says about which changes are worth a try.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <peakline/import.h>
#include <peakline/status.h>
#include <peakline/trace.h>

namespace peakline {

// What the script calls its model, and from where on.
struct ScriptModel {
  std::string name;   // an expression: model, self.net
  std::string place;  // "after line 12 of train.py"; "" where nobody knows
};

// What one line can call a model and its optimizer.
struct ScriptOptimizer {
  std::string model;
  std::string optimizer;
  std::string place;
};

struct AdviceFacts {
  RunInfo info;                                 // facts may be written as late as the end of a run
  std::unordered_set<std::uint64_t> gradients;  // blocks
  bool reads_all_gradients = false;  // clips them, or looks for infinities, before the optimizer
  // Modules of one class that stand beside each other, and no modules inside of such: layers.
  std::unordered_set<std::uint32_t> layers;
  // Calls of layers, by the event that enters them, that a backward follows.
  std::unordered_set<std::uint64_t> trained_calls;
  std::vector<std::string> layer_names;  // of these, as `model` names them
  ScriptModel model{.name = "model", .place = ""};
  ScriptOptimizer with_optimizer{.model = "model", .optimizer = "optimizer", .place = ""};
  bool recomputes = false;  // the program does so by itself
  bool shards = false;      // layers gather their parameters
};

// Nothing when there are more than `most` events.
Result<std::optional<AdviceFacts>> read_advice_facts(TraceReader& reader, std::uint64_t most);

// "layers.{0..3}" for layers.0 to layers.3: as a plan names them.
std::vector<std::string> name_ranges(const std::vector<std::string>& names);

}  // namespace peakline
