// Reductions to fewer elements: one kernel, whose blocks meet at the end where they share a result.
#include <array>

#include "cost/rules.h"

namespace peakline::cost {
namespace {

constexpr std::array<std::string_view, 26> kReductions{
    "sum",      "mean",         "amax",         "amin",          "max",
    "min",      "argmax",       "argmin",       "prod",          "norm",
    "any",      "all",          "var",          "std",           "var_mean",
    "std_mean", "logsumexp",    "nansum",       "count_nonzero", "linalg_vector_norm",
    "aminmax",  "_is_all_true", "_is_any_true", "median",        "mode",
    "trace"};

// What a kernel does for each element that it reads.
double instructions(const CallView& view, const TensorMeta& input, bool to_one) {
  const bool variance = view.name.starts_with("var") || view.name.starts_with("std");
  if (variance) return 60;
  // Down to one number loads are as wide as can be, in any type.
  return is_reduced_float(input.dtype) && !to_one ? 24 : 16;
}

// Columns four at a time: a block has 128 of them and four walkers. Rows are split over as many blocks as
// leave each walker 16, and the last block adds up what they found, one after another.
double four_columns_us(double rows, double columns, const Machine& machine) {
  constexpr double kWalkers = 4;
  constexpr double kLeast = 16;
  constexpr double kRowUs = 0.08;
  constexpr double kFoundUs = 0.42;
  const double walked = ceil_div(rows, kWalkers);
  const double resident = machine.sms() * 16;
  const double blocks = ceil_div(columns, 128);
  const double parts =
      walked < kWalkers * kLeast
          ? 1
          : std::max(1.0, std::min(ceil_div(resident, blocks), ceil_div(walked, kLeast)));
  return walked / parts * kRowUs + (parts > 1 ? parts / kWalkers * kFoundUs : 0);
}

}  // namespace

bool reduction_rules(const CallView& view, OpTimer& op) {
  bool known = false;
  for (const std::string_view name : kReductions) known = known || name == view.name;
  const TensorMeta& input = view.args.tensor(0);
  const TensorMeta& output = view.args.out(0);
  // max(a, b) and the like are loops over elements.
  if (!known || !input.defined || view.args.tensor(1).defined) return false;
  const Machine& machine = op.machine();
  const auto from = static_cast<double>(input.numel());
  const auto to = std::max(1.0, static_cast<double>(output.numel()));
  const double bytes = distinct_bytes(input) + bytes_written(view);
  const bool inner = !input.sizes.empty() && !output.sizes.empty() &&
                     (output.sizes.size() == input.sizes.size()
                          ? output.sizes.back() == 1 && input.sizes.back() != 1
                          : output.sizes.back() != input.sizes.back());
  // Blocks of 512 threads, four elements each at a time. A result that has more than one block waits
  // for all of them.
  const double per_result = from / to;
  const double resident = machine.sms() * 4;
  double latency = machine.rates().block_us / 2;
  double chain = 0;
  if (!inner && to > 1 && std::fmod(to, 4) == 0) {
    chain = four_columns_us(per_result, to, machine);
  } else if (per_result > 2048 && to < resident) {
    latency += machine.rates().reduce_us;
  } else if (inner || to == 1) {
    chain = ceil_div(per_result, 2048) * 0.35 * std::max(1.0, ceil_div(to, resident * 4));
  } else {
    // Down the columns: each thread walks its own, a warp's columns side by side.
    const double columns = ceil_div(to, 32);
    const double walkers = std::clamp(ceil_div(resident * 2, columns), 1.0, 64.0) * 16;
    chain = ceil_div(per_result, walkers * 4) * 0.5;
    if (walkers > 16) latency += machine.rates().reduce_us / 2;
  }
  op.add({.compute_us =
              std::max(machine.instructions_us(from * instructions(view, input, to == 1)), chain),
          .memory_us = machine.memory_us(bytes),
          .latency_us = latency},
         bytes);
  return true;
}

}  // namespace peakline::cost
