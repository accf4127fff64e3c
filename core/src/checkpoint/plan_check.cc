#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include <peakline/checkpoint_plan.h>

namespace peakline {
namespace {

// Solvers answer in floating point.
constexpr double kTolerance = 1e-5;

double recompute_ms(const CheckpointNode& node, double discard) {
  double share = 0;
  for (std::size_t i = 0; i < node.slopes.size(); ++i) {
    share = std::max(share, node.slopes[i] * discard + node.intercepts[i]);
  }
  return share * node.runtime;
}

Status allowed(const CheckpointProblem& problem, const std::vector<double>& discard) {
  const std::vector<CheckpointNode>& nodes = problem.nodes;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (discard[i] <= 0) continue;
    if (!nodes[i].may_checkpoint) {
      return invalid_input(fmt::format("module {} may not be checkpointed", i));
    }
    if (discard[i] > 1 + kTolerance) {
      return invalid_input(fmt::format("more than all of module {} is discarded", i));
    }
    const double least = (nodes[i].memory - nodes[i].saved) / std::max(1.0, nodes[i].memory);
    if (discard[i] < least - kTolerance) {
      return invalid_input(fmt::format("module {} would need more memory than before", i));
    }
    for (auto j = i + 1; j < static_cast<std::size_t>(nodes[i].subtree_end); ++j) {
      if (discard[j] > 0) {
        return invalid_input(
            fmt::format("module {} lies inside module {}, both are in the plan", j, i));
      }
    }
  }
  return {};
}

}  // namespace

Result<CheckpointCost> check_plan(const CheckpointProblem& problem,
                                  const std::vector<double>& discard) {
  const std::vector<CheckpointNode>& nodes = problem.nodes;
  if (discard.size() != nodes.size()) return invalid_input("a plan has one number for each module");
  PEAKLINE_RETURN_IF_ERROR(allowed(problem, discard));
  CheckpointCost cost;
  std::vector<double> freed(nodes.size() + 1);  // by the order in which forward leaves modules
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (discard[i] <= 0) continue;
    cost.recompute_ms += recompute_ms(nodes[i], discard[i]);
    freed[static_cast<std::size_t>(nodes[i].post_position) + 1] +=
        nodes[i].memory * discard[i] - (nodes[i].memory - nodes[i].saved);
  }
  for (std::size_t i = 1; i < freed.size(); ++i) freed[i] += freed[i - 1];
  for (const CheckpointNode& node : nodes) {
    const double activations =
        node.act_total + node.act_grad - freed[static_cast<std::size_t>(node.post_position)];
    cost.peak = std::max(cost.peak,
                         activations + (problem.parameters + node.grad_total) / problem.world_size);
  }
  if (cost.peak > problem.budget * (1 + kTolerance)) {
    return invalid_input(fmt::format("the plan needs {:.0f} bytes, and {:.0f} are allowed",
                                     cost.peak, problem.budget));
  }
  return cost;
}

Result<double> check_choices(const OpChoices& choices, const std::vector<int>& save) {
  if (save.size() != choices.memory.size()) return invalid_input("a choice for each op is needed");
  double memory = 0;
  double recomputed = 0;
  for (std::size_t i = 0; i < save.size(); ++i) {
    if (choices.fixed[i] >= 0 && save[i] != choices.fixed[i]) {
      return invalid_input(fmt::format("op {} has no choice", i));
    }
    memory += save[i] * choices.memory[i];
    recomputed += (1 - save[i]) * choices.runtime[i];
  }
  for (const auto& [a, b] : choices.equal) {
    if (save[static_cast<std::size_t>(a)] != save[static_cast<std::size_t>(b)]) {
      return invalid_input(fmt::format("ops {} and {} go together", a, b));
    }
  }
  if (memory > choices.budget * (1 + kTolerance)) {
    return invalid_input("the choice saves more than the budget");
  }
  return recomputed;
}

}  // namespace peakline
