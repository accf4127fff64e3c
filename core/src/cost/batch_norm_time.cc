// Batch norms: who runs them, and what one channel's block or the whole kernel is bound by.
#include "cost/rules.h"

namespace peakline::cost {
namespace {

struct Norm {
  double channels = 1;
  double per_channel = 0;  // elements
  double planes = 1;       // pictures times channels
  double bytes = 0;        // of the input
  bool single = false;     // single precision
};

Norm norm_of(const TensorMeta& input) {
  Norm n;
  n.bytes = distinct_bytes(input);
  n.single = input.dtype == DType::kFloat32;
  const auto count = static_cast<double>(input.numel());
  if (input.sizes.size() >= 2) {
    n.channels = std::max(1.0, static_cast<double>(input.sizes[1]));
    n.planes = n.channels * static_cast<double>(input.sizes[0]);
  }
  n.per_channel = count / n.channels;
  return n;
}

// Channels innermost: blocks take many channels at once.
bool channels_last(const TensorMeta& input) {
  return input.sizes.size() > 2 && input.strides[1] == 1 && input.sizes[1] > 1;
}

// A block of its own for each channel, one after another on a multiprocessor or a few side by side.
// One alone waits for its loads (`alone_ns` for each element, and from L2 `near_ns`); several fill the
// multiprocessor (`shared_ns`).
struct ByChannel {
  double alone_ns;
  double near_ns;
  double shared_ns;
};

double by_channel_us(const Norm& n, const ByChannel& pace, const Machine& machine) {
  // The input, the gradient, the result, and what the kernel before left there.
  constexpr double kTensors = 4;
  const double near = machine.l2_share(kTensors * n.bytes);
  const double alone = near * pace.near_ns + (1 - near) * pace.alone_ns;
  const double turns = n.channels / machine.sms();
  return n.per_channel * std::max(alone, turns * pace.shared_ns) / 1e3;
}

// cuDNN, one channel after another: one kernel. A channel that fits into a block's memory is read once.
void add_cudnn(const Norm& n, bool backward, OpTimer& op) {
  const Machine& machine = op.machine();
  const double kilobytes = n.bytes / n.channels / 1e3;
  const double moved = (backward ? 5 : 3) * n.bytes;
  if (kilobytes <= (backward ? 64 : 128)) {
    constexpr double kStart = 1.2;
    const double block = kStart + kilobytes * (backward ? 0.175 : 0.085);
    const double turns = std::max(1.0, n.channels / machine.sms());
    op.add({.compute_us = turns * block, .memory_us = machine.row_memory_us(n.bytes)}, moved);
    return;
  }
  const ByChannel pace =
      backward ? ByChannel{1.43, 0.7, 0.75} : ByChannel{0.5, 0.43, 0.5};  // of 4 bytes
  op.add({.compute_us = by_channel_us(n, pace, machine) * (n.single ? 1 : 0.75),
          .memory_us = machine.row_memory_us(moved)},
         moved);
}

// cuDNN, channels last: blocks that stay, over all channels.
void add_cudnn_last(const Norm& n, bool backward, OpTimer& op) {
  const Machine& machine = op.machine();
  const double moved = (backward ? 5 : 3) * n.bytes;
  op.add({.memory_us = machine.row_memory_us(moved), .latency_us = backward ? 3.5 : 4.5}, moved);
}

// torch's own, one block a channel: statistics and values forward, all in one backward. Values are
// loaded one at a time, and every picture's plane is a block's own.
void add_native(const Norm& n, bool backward, OpTimer& op) {
  const Machine& machine = op.machine();
  const double count = n.per_channel * n.channels;
  const ByChannel pace = backward ? ByChannel{1.8, 1.0, 0.8} : ByChannel{0.72, 0.5, 0.35};
  op.add({.compute_us = by_channel_us(n, pace, machine),
          .memory_us = machine.row_memory_us(n.bytes),
          .latency_us = 2},
         n.bytes);
  if (backward) return;
  op.add({}, 0);  // running averages
  constexpr double kPlaneUs = 0.083;
  op.add({.compute_us =
              std::max(machine.instructions_us(count * 60), n.planes * kPlaneUs / machine.sms()),
          .memory_us = machine.row_memory_us(2 * n.bytes)},
         2 * n.bytes);
}

// torch's own, channels last: statistics over all blocks, which meet at the end, then values.
void add_native_last(const Norm& n, bool backward, OpTimer& op) {
  const Machine& machine = op.machine();
  const double count = n.per_channel * n.channels;
  // A warp's width of channels leaves half of the threads without any.
  const double few = n.channels <= 32 ? 1.8 : 1;
  const double statistics = backward ? 60 : 90;
  const double values = backward ? 60 : 45;
  op.add({.compute_us = machine.instructions_us(count * statistics * few),
          .memory_us = machine.row_memory_us((backward ? 2 : 1) * n.bytes),
          .latency_us = machine.rates().reduce_us + (backward ? 0 : 3)},
         n.bytes);
  op.add({}, 0);  // running averages, or zeros to meet in
  const double moved = (backward ? 3 : 2) * n.bytes;
  op.add({.compute_us = machine.instructions_us(count * values * few),
          .memory_us = machine.row_memory_us(moved)},
         moved);
}

void add_batch_norm(const TensorMeta& input, bool cudnn, bool training, bool backward,
                    OpTimer& op) {
  const Norm n = norm_of(input);
  if (!training) {
    op.add({.memory_us = op.machine().memory_us(2 * n.bytes)}, 2 * n.bytes);
  } else if (cudnn) {
    channels_last(input) ? add_cudnn_last(n, backward, op) : add_cudnn(n, backward, op);
  } else {
    channels_last(input) ? add_native_last(n, backward, op) : add_native(n, backward, op);
  }
}

}  // namespace

bool batch_norm_rules(const CallView& view, OpTimer& op) {
  const std::string_view name = view.name;
  const bool cudnn = name.starts_with("cudnn_");
  if (name == "native_batch_norm" || name == "cudnn_batch_norm" ||
      name == "_native_batch_norm_legit" || name == "_batch_norm_with_update" ||
      name == "miopen_batch_norm") {
    add_batch_norm(view.args.tensor(0), cudnn, view.args.flag(5, true), false, op);
    return true;
  }
  if (name == "native_batch_norm_backward" || name == "batch_norm_backward") {
    add_batch_norm(view.args.tensor(1), cudnn, true, true, op);
    return true;
  }
  if (name == "cudnn_batch_norm_backward") {
    add_batch_norm(view.args.tensor(0), cudnn, true, true, op);
    return true;
  }
  return false;
}

}  // namespace peakline::cost
