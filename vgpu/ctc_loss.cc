// CTC loss. cuDNN's is taken for targets of 32-bit integers in one row only; torch's own is the rule.
// (MIOpen's question came with torch 2.13: a name that torch does not know is never asked for.)
#include "vgpu/ctc_loss.h"

#include <ATen/ATen.h>

#include <string>
#include <tuple>
#include <vector>

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

// Read from the device, as torch does.
std::vector<std::int64_t> lengths(const at::Tensor& tensor) {
  const at::Tensor read = tensor.to(at::kCPU, at::kLong).contiguous();
  const auto* first = read.const_data_ptr<std::int64_t>();
  return {first, first + read.numel()};
}

std::tuple<at::Tensor, at::Tensor> loss(const at::Tensor& log_probabilities,
                                        const at::Tensor& targets, const at::Tensor& input_lengths,
                                        const at::Tensor& target_lengths, std::int64_t blank,
                                        bool zero_infinity) {
  return at::_ctc_loss(log_probabilities, targets, lengths(input_lengths), lengths(target_lengths),
                       blank, zero_infinity);
}

at::Tensor loss_backward(const at::Tensor& gradient, const at::Tensor& log_probabilities,
                         const at::Tensor& targets, const at::Tensor& input_lengths,
                         const at::Tensor& target_lengths, const at::Tensor& likelihood,
                         const at::Tensor& log_alpha, std::int64_t blank, bool zero_infinity) {
  return at::_ctc_loss_backward(gradient, log_probabilities, targets, lengths(input_lengths),
                                lengths(target_lengths), likelihood, log_alpha, blank,
                                zero_infinity);
}

}  // namespace

void add_ctc_loss(torch::Library& aten) {
  for (const std::string library : {"cudnn", "miopen"}) {
    const std::string name = "_use_" + library + "_ctc_loss";
    aten.impl(name.c_str(), TORCH_FN(no_library));
    aten.impl((name + ".Tensor").c_str(), TORCH_FN(no_library_of_tensors));
  }
  aten.impl("_ctc_loss.Tensor", TORCH_FN(loss));
  aten.impl("_ctc_loss_backward.Tensor", TORCH_FN(loss_backward));
}

}  // namespace peakline::vgpu
