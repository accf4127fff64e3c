#include <algorithm>
#include <array>

#include <peakline/cost.h>

#include "cost/rules.h"

namespace peakline {
namespace {

using cost::CallView;
using cost::Machine;
using cost::OpTimer;

// They give memory a name, a shape or an owner, and start no kernel.
constexpr std::array<std::string_view, 34> kNoKernel{"_local_scalar_dense",
                                                     "_nested_tensor_size",
                                                     "_reshape_alias",
                                                     "_unsafe_view",
                                                     "_version",
                                                     "alias",
                                                     "as_strided",
                                                     "detach",
                                                     "empty",
                                                     "empty_like",
                                                     "empty_permuted",
                                                     "empty_strided",
                                                     "expand",
                                                     "is_pinned",
                                                     "is_same_size",
                                                     "item",
                                                     "lift",
                                                     "lift_fresh",
                                                     "new_empty",
                                                     "new_empty_strided",
                                                     "permute",
                                                     "record_stream",
                                                     "resize",
                                                     "select",
                                                     "set",
                                                     "set_data",
                                                     "size",
                                                     "slice",
                                                     "split",
                                                     "squeeze",
                                                     "t",
                                                     "transpose",
                                                     "unsqueeze",
                                                     "view"};
static_assert(std::ranges::is_sorted(kNoKernel));

bool starts_none(const OpCall& call, std::string_view name) {
  if (call.view) return true;
  return std::ranges::binary_search(kNoKernel, name);
}

std::string_view bare(std::string_view name) {
  const std::size_t at = name.find("::");
  if (at != name.npos) name.remove_prefix(at + 2);
  return name;
}

CallView view_of(const OpCall& call, const KernelState& state) {
  std::string_view name = bare(call.name);
  bool in_place = call.overload == "out" || call.overload.ends_with("_out");
  if (name.size() > 1 && name.ends_with('_') && !name.ends_with("__")) {
    name.remove_suffix(1);
    in_place = true;
  }
  return {call, kernels::OpArgs(call), name, state, in_place};
}

bool on_gpu(const OpCall& call) {
  bool any = false;
  for (const Argument& argument : call.arguments) {
    if (const auto* tensor = std::get_if<TensorMeta>(&argument)) {
      any = any || (tensor->defined && tensor->on_gpu);
    } else if (const auto* list = std::get_if<std::vector<TensorMeta>>(&argument)) {
      for (const TensorMeta& item : *list) any = any || item.on_gpu;
    }
  }
  for (const OpCall::Output& output : call.outputs) any = any || output.meta.on_gpu;
  return any;
}

// What the host does for an op, measured as the time to issue it over that of an addition: an op that
// asks a library (cuBLAS, cuDNN), picks among kernels or draws random numbers takes about three times
// as long; a convolution's backward asks twice.
constexpr double kAsksLibrary = 3;
// Lists of tensors: each is looked at, and each result is allocated.
constexpr double kListed = 0.03;
constexpr double kAllocated = 0.3;

double issue_of(const CallView& view, bool asks) {
  if (view.name.find("convolution_backward") != view.name.npos) return 2 * kAsksLibrary;
  if (asks || view.name.find("dropout") != view.name.npos) return kAsksLibrary;
  double work = 1;
  for (const Argument& argument : view.call.arguments) {
    if (const auto* list = std::get_if<std::vector<TensorMeta>>(&argument)) {
      work += kListed * static_cast<double>(list->size());
    }
  }
  double fresh = 0;
  for (const OpCall::Output& output : view.call.outputs) fresh += output.fresh ? 1 : 0;
  return work + kAllocated * std::max(0.0, fresh - 1);
}

}  // namespace

std::string_view to_text(TimeBound bound) noexcept {
  switch (bound) {
    case TimeBound::kCompute:
      return "compute";
    case TimeBound::kMemory:
      return "memory";
    case TimeBound::kNetwork:
      return "network";
    case TimeBound::kLatency:
      break;
  }
  return "latency";
}

OpTime op_time(const OpCall& call, const DeviceProfile& gpu, const KernelState& state) {
  const CallView view = view_of(call, state);
  if (starts_none(call, view.name)) return {};
  if (!on_gpu(call)) return cost::host_time(view, gpu.time);
  const Machine machine(gpu);
  OpTimer op(machine);
  const bool asks = cost::matrix_rules(view, op) || cost::attention_rules(view, op) ||
                    cost::convolution_rules(view, op) || cost::row_rules(view, op) ||
                    cost::batch_norm_rules(view, op) || cost::recurrent_rules(view, op);
  const bool known = asks || cost::reduction_rules(view, op) || cost::indexing_rules(view, op) ||
                     cost::picture_rules(view, op) || cost::list_rules(view, op);
  if (!known) {
    cost::elementwise_rule(view, op);
    if (!call.name.starts_with("aten::")) op.guess();
  }
  OpTime time = op.time();
  time.issue = issue_of(view, asks);
  return time;
}

OpTime host_copy_time(double bytes, bool pinned, const DeviceProfile& gpu) {
  const TimeRates& rates = gpu.time;
  const double rate = pinned ? rates.pcie_gbps : std::min(rates.pcie_gbps, rates.pageable_gbps);
  OpTime time;
  time.us = rates.pcie_us + bytes / rate / 1e3;
  time.bytes = bytes;
  time.kernels = 1;
  time.bound = bytes / rate / 1e3 > rates.pcie_us ? TimeBound::kMemory : TimeBound::kLatency;
  return time;
}

}  // namespace peakline
