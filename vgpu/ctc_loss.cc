// CTC loss. cuDNN's is taken for targets of 32-bit integers in one row only; torch's own is the rule.
// (MIOpen's question came with torch 2.13: a name that torch does not know is never asked for.)
#include "vgpu/ctc_loss.h"

#include <ATen/ATen.h>

#include <string>
#include <tuple>
#include <vector>

#include "vgpu/values.h"
#include "vgpu/values/host_run.h"

namespace peakline::vgpu {
namespace {

bool no_library(const at::Tensor&, const at::Tensor&, at::IntArrayRef, at::IntArrayRef,
                std::int64_t) {
  return false;
}

bool no_library_of_tensors(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                           const at::Tensor&, std::int64_t) {
  return false;
}

// Read from the device, as torch does. Where nobody knows them, what the program's user says, or the
// longest that there can be.
std::vector<std::int64_t> lengths(const at::Tensor& tensor, std::int64_t longest) {
  const std::optional<at::Tensor> known = known_values(tensor);
  if (!known) {
    Engine& engine = engine_or_throw("aten::_ctc_loss");
    engine.ask("aten::_ctc_loss", Decides::kSize);
    const std::int64_t told = engine.policy().whole;
    const bool is_usual = told == ValuePolicy{}.whole;
    return std::vector<std::int64_t>(static_cast<std::size_t>(tensor.numel()),
                                     is_usual ? longest : std::min(told, longest));
  }
  const HostRun host;
  const at::Tensor read = known->to(at::kLong).contiguous();
  const auto* first = read.const_data_ptr<std::int64_t>();
  return {first, first + read.numel()};
}

// Targets are rows of one length, or all in one row, of which each takes its part.
std::int64_t longest_target(const at::Tensor& targets, std::int64_t batch) {
  if (targets.dim() > 1) return targets.size(1);
  return targets.numel() / std::max<std::int64_t>(batch, 1);
}

std::vector<std::int64_t> input_lengths_of(const at::Tensor& log_probabilities,
                                           const at::Tensor& lengths_given) {
  return lengths(lengths_given, log_probabilities.size(0));
}

std::vector<std::int64_t> target_lengths_of(const at::Tensor& targets,
                                            const at::Tensor& lengths_given) {
  return lengths(lengths_given, longest_target(targets, lengths_given.numel()));
}

std::tuple<at::Tensor, at::Tensor> loss(const at::Tensor& log_probabilities,
                                        const at::Tensor& targets, const at::Tensor& input_lengths,
                                        const at::Tensor& target_lengths, std::int64_t blank,
                                        bool zero_infinity) {
  return at::_ctc_loss(log_probabilities, targets,
                       input_lengths_of(log_probabilities, input_lengths),
                       target_lengths_of(targets, target_lengths), blank, zero_infinity);
}

at::Tensor loss_backward(const at::Tensor& gradient, const at::Tensor& log_probabilities,
                         const at::Tensor& targets, const at::Tensor& input_lengths,
                         const at::Tensor& target_lengths, const at::Tensor& likelihood,
                         const at::Tensor& log_alpha, std::int64_t blank, bool zero_infinity) {
  return at::_ctc_loss_backward(
      gradient, log_probabilities, targets, input_lengths_of(log_probabilities, input_lengths),
      target_lengths_of(targets, target_lengths), likelihood, log_alpha, blank, zero_infinity);
}

// torch reads lengths before it looks at anything else; here what they are may follow from the rest.
at::Tensor loss_of_tensors(const at::Tensor& log_probabilities, const at::Tensor& targets,
                           const at::Tensor& input_lengths, const at::Tensor& target_lengths,
                           std::int64_t blank, std::int64_t reduction, bool zero_infinity) {
  return at::ctc_loss(log_probabilities, targets,
                      input_lengths_of(log_probabilities, input_lengths),
                      target_lengths_of(targets, target_lengths), blank, reduction, zero_infinity);
}

}  // namespace

void add_ctc_loss_of_tensors(torch::Library& library) {
  library.impl("ctc_loss.Tensor", TORCH_FN(loss_of_tensors));
}

void add_ctc_loss(torch::Library& aten) {
  for (const std::string library : {"cudnn", "miopen"}) {
    const std::string name = "_use_" + library + "_ctc_loss";
    aten.impl(name.c_str(), TORCH_FN(no_library));
    aten.impl((name + ".Tensor").c_str(), TORCH_FN(no_library_of_tensors));
  }
  add_ctc_loss_of_tensors(aten);
  aten.impl("_ctc_loss.Tensor", TORCH_FN(loss));
  aten.impl("_ctc_loss_backward.Tensor", TORCH_FN(loss_backward));
}

}  // namespace peakline::vgpu
