// Ops on the host's own tensors: pictures drawn at random, masks, labels. The GPU gets nothing from
// them, and the host issues nothing else meanwhile.
#include <algorithm>
#include <array>

#include "cost/rules.h"

namespace peakline::cost {
namespace {

constexpr std::array<std::string_view, 17> kRandom{
    "bernoulli",  "cauchy",      "exponential", "geometric",
    "log_normal", "multinomial", "normal",      "normal_functional",
    "rand",       "rand_like",   "randint",     "randint_like",
    "randn",      "randn_like",  "random",      "randperm",
    "uniform"};
static_assert(std::ranges::is_sorted(kRandom));

double elements(const TensorMeta& tensor) {
  double count = tensor.defined ? 1 : 0;
  for (const std::int64_t size : tensor.sizes) count *= static_cast<double>(size);
  return count;
}

double bytes_given(const CallView& view) {
  double bytes = 0;
  for (const Argument& argument : view.call.arguments) {
    if (const auto* tensor = std::get_if<TensorMeta>(&argument)) {
      bytes += distinct_bytes(*tensor);
    } else if (const auto* list = std::get_if<std::vector<TensorMeta>>(&argument)) {
      for (const TensorMeta& item : *list) bytes += distinct_bytes(item);
    }
  }
  return bytes;
}

// An op in place is given what it fills.
double drawn(const CallView& view) {
  double count = view.in_place ? elements(view.args.tensor(0)) : 0;
  for (const OpCall::Output& output : view.call.outputs) {
    count = std::max(count, elements(output.meta));
  }
  return count;
}

}  // namespace

// One generator makes one number after another, on one thread, and that is slower than memory.
OpTime host_time(const CallView& view, const TimeRates& rates) {
  OpTime time;
  if (std::ranges::binary_search(kRandom, view.name)) {
    time.host_us = drawn(view) * rates.host_random_ns / 1e3;
  } else {
    time.host_us = (bytes_given(view) + bytes_written(view)) / rates.host_gbps / 1e3;
  }
  return time;
}

}  // namespace peakline::cost
