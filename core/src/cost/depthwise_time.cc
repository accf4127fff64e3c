// Instructions of single kernels on an H200, over its rate of instructions: nothing is reused, so these
// kernels are bound by addresses, bounds and loads, and not by what they multiply.
#include "cost/depthwise.h"

namespace peakline::cost {
namespace {

void add_work(const Depthwise& d, double instructions, OpTimer& op) {
  op.add({.compute_us = op.machine().instructions_us(instructions),
          .memory_us = op.machine().memory_us(d.bytes)},
         d.bytes, 2 * d.results * d.taps);
}

}  // namespace

void add_depthwise_forward(const Depthwise& d, OpTimer& op) {
  if (d.own) return add_work(d, d.results * (130 + 17 * d.taps), op);
  add_work(d, d.results * d.taps * (is_reduced_float(d.dtype) && d.channels_last ? 5.8 : 9), op);
}

void add_depthwise_input(const Depthwise& d, OpTimer& op) {
  // Every place of the input looks at all taps, also at those that a stride leaves out.
  if (d.own) return add_work(d, d.inputs * std::max(490.0, 26 * d.taps), op);
  const bool skips = d.strided && !is_reduced_float(d.dtype);
  add_work(d, d.inputs * d.taps * (skips ? 14.5 : 10), op);
}

void add_depthwise_weight(const Depthwise& d, OpTimer& op) {
  const Machine& machine = op.machine();
  if (d.own) {
    // A block for each weight, over all places of its channel.
    constexpr double kStart = 0.45;
    const double places = d.results / std::max(1.0, d.channels);
    const double block = kStart + machine.instructions_us(places * 44) * machine.sms();
    op.add({.compute_us = ceil_div(d.channels * d.taps, machine.sms()) * block,
            .memory_us = machine.memory_us(d.bytes)},
           d.bytes, 2 * d.results * d.taps);
    return;
  }
  if (!d.channels_last) {
    const double turned = 2 * d.picture_bytes;
    op.add({.memory_us = machine.row_memory_us(turned)}, turned);
  }
  const bool half = is_reduced_float(d.dtype);
  add_work(d, d.results * (half ? 60 + 3 * d.taps : 100 + 8 * d.taps), op);
  op.add({.latency_us = 1}, 0);  // the blocks' sums
}

}  // namespace peakline::cost
