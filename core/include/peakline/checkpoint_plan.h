// Which modules to checkpoint, and how much of each: the numbers of such a plan.
#pragma once

#include <cstdint>
#include <vector>

#include <peakline/status.h>

namespace peakline {

// Straight pieces, joined, that follow a curve.
struct Pieces {
  std::vector<double> breaks;      // one more than there are pieces; the first and last x included
  std::vector<double> slopes;      // of each piece
  std::vector<double> intercepts;  // where each, made longer, meets x = 0
};

// `count` joined pieces with the least squared distance to the points. The x ascend.
Result<Pieces> fit_pieces(const std::vector<double>& x, const std::vector<double>& y, int count);

// A module of a model, in the order in which forward enters them.
struct CheckpointNode {
  int subtree_end = 0;    // its descendants are the nodes before this one, after itself
  int post_position = 0;  // the order in which forward leaves them
  bool may_checkpoint = false;
  double memory = 0;           // bytes of all that forward makes inside
  double saved = 0;            // bytes of what backward needs of it
  double act_total = 0;        // activations alive as backward enters
  double act_grad = 0;         // gradients of activations, at most
  double grad_total = 0;       // gradients of parameters as backward enters
  double runtime = 0;          // milliseconds of forward
  std::vector<double> slopes;  // recomputed share of the runtime over discarded share of the memory
  std::vector<double> intercepts;
};

struct CheckpointProblem {
  std::vector<CheckpointNode> nodes;
  double parameters = 0;  // bytes
  double budget = 0;      // bytes
  double world_size = 1;  // parameters and gradients are sharded
};

struct CheckpointCost {
  double recompute_ms = 0;
  double peak = 0;  // bytes
};

// What a plan costs: `discard[i]` is the share of the node's memory that is discarded, 0 where it is
// not checkpointed. An error names what makes it no plan: a node that may not be, two that are
// nested, too little discarded to save anything, or a peak over the budget.
Result<CheckpointCost> check_plan(const CheckpointProblem& problem,
                                  const std::vector<double>& discard);

// The same for the ops of one module: `save[i]` keeps op i's result. `groups` hold ops that go
// together; -1, 0, 1 in `fixed`: free, recomputed, saved.
struct OpChoices {
  std::vector<double> memory;
  std::vector<double> runtime;
  std::vector<int> fixed;
  std::vector<std::pair<int, int>> equal;
  double budget = 0;  // bytes
};
Result<double> check_choices(const OpChoices& choices, const std::vector<int>& save);

}  // namespace peakline
