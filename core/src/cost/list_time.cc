// Ops over lists of tensors: a few kernels walk all of them, chunk by chunk.
#include "cost/rules.h"

namespace peakline::cost {
namespace {

// Chunks are 65,536 elements; addresses of as many tensors as fit into a launch's arguments.
constexpr double kChunk = 65536;
constexpr double kTensorsPerLaunch = 36;
constexpr double kChunksPerLaunch = 320;

struct Walk {
  double elements = 0;
  double chunks = 0;
  double tensors = 0;
};

Walk walk_of(const std::vector<TensorMeta>& tensors) {
  Walk walk;
  for (const TensorMeta& tensor : tensors) {
    const auto count = static_cast<double>(tensor.numel());
    walk.elements += count;
    walk.chunks += ceil_div(count, kChunk);
    walk.tensors += 1;
  }
  return walk;
}

void add_walk(const Walk& walk, double bytes, double instructions, OpTimer& op) {
  const Machine& machine = op.machine();
  const double launches = std::max(
      {1.0, ceil_div(walk.tensors, kTensorsPerLaunch), ceil_div(walk.chunks, kChunksPerLaunch)});
  // A launch with fewer chunks than multiprocessors leaves some of them idle.
  const double per_launch = std::max(1.0, walk.chunks / launches);
  const double share = std::min(1.0, per_launch / machine.sms());
  for (auto left = static_cast<std::int64_t>(launches); left > 0; --left) {
    op.add({.compute_us = machine.instructions_us(walk.elements * instructions / launches) / share,
            .memory_us = machine.row_memory_us(bytes / launches) / share,
            .latency_us = 1},
           bytes / launches);
  }
}

double bytes_of(const std::vector<TensorMeta>& tensors) {
  double bytes = 0;
  for (const TensorMeta& tensor : tensors) bytes += distinct_bytes(tensor);
  return bytes;
}

// The optimizer's own list arguments come first: parameters, gradients, then its state.
bool fused_optimizer(const CallView& view, OpTimer& op) {
  if (!view.name.starts_with("_fused_")) return false;
  const bool adam = view.name.starts_with("_fused_adam");
  const bool sgd = view.name.starts_with("_fused_sgd");
  const bool adagrad = view.name.starts_with("_fused_adagrad");
  if (!adam && !sgd && !adagrad) return false;
  const std::vector<TensorMeta>& parameters = view.args.tensors(0);
  const std::size_t lists = adam ? 5 : 3;  // the fifth of Adam's is there with amsgrad
  double bytes = 0;
  for (std::size_t i = 0; i < lists; ++i) {
    // All are read; all but the gradients are written back.
    bytes += bytes_of(view.args.tensors(i)) * (i == 1 ? 1 : 2);
  }
  add_walk(walk_of(parameters), bytes, adam ? 205 : 60, op);
  return true;
}

}  // namespace

bool list_rules(const CallView& view, OpTimer& op) {
  if (fused_optimizer(view, op)) return true;
  if (!view.name.starts_with("_foreach_") &&
      !view.name.starts_with("_amp_foreach_non_finite_check_and_unscale")) {
    return false;
  }
  const std::vector<TensorMeta>& first = view.args.tensors(0);
  if (first.empty()) return true;
  if (view.name == "_foreach_norm" || view.name == "_foreach_max") {
    const double bytes = bytes_of(first);
    add_walk(walk_of(first), bytes, 30, op);
    add_walk(walk_of(first), 0, 0, op);
    return true;
  }
  if (view.name == "_foreach_add" && first.front().numel() == 1 && !first.front().on_gpu) {
    return true;  // step counters on the host
  }
  const double bytes = bytes_read(view) + bytes_written(view);
  const bool half = is_reduced_float(first.front().dtype);
  add_walk(walk_of(first), bytes, half ? 76 : 45, op);
  return true;
}

}  // namespace peakline::cost
