// What the optimizers of torch's C++ API keep for each parameter.
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "libtorch/run.h"

namespace peakline {
namespace {

namespace optim = torch::optim;
using Tensors = std::vector<at::Tensor>;

Tensors kept(const optim::OptimizerParamState& state) {
  if (const auto* adam = dynamic_cast<const optim::AdamParamState*>(&state)) {
    return {adam->exp_avg(), adam->exp_avg_sq(), adam->max_exp_avg_sq()};
  }
  if (const auto* adamw = dynamic_cast<const optim::AdamWParamState*>(&state)) {
    return {adamw->exp_avg(), adamw->exp_avg_sq(), adamw->max_exp_avg_sq()};
  }
  if (const auto* sgd = dynamic_cast<const optim::SGDParamState*>(&state)) {
    return {sgd->momentum_buffer()};
  }
  if (const auto* rms = dynamic_cast<const optim::RMSpropParamState*>(&state)) {
    return {rms->square_avg(), rms->momentum_buffer(), rms->grad_avg()};
  }
  if (const auto* adagrad = dynamic_cast<const optim::AdagradParamState*>(&state)) {
    return {adagrad->sum()};
  }
  if (const auto* lbfgs = dynamic_cast<const optim::LBFGSParamState*>(&state)) {
    Tensors tensors{lbfgs->d(), lbfgs->H_diag(), lbfgs->prev_flat_grad()};
    for (const at::Tensor& tensor : lbfgs->old_dirs()) tensors.push_back(tensor);
    for (const at::Tensor& tensor : lbfgs->old_stps()) tensors.push_back(tensor);
    for (const at::Tensor& tensor : lbfgs->ro()) tensors.push_back(tensor);
    return tensors;
  }
  return {};
}

}  // namespace

std::vector<capture::StateTensor> state_of(const optim::Optimizer& optimizer) {
  std::vector<capture::StateTensor> found;
  const auto& states = optimizer.state();
  for (const optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const auto state = states.find(parameter.unsafeGetTensorImpl());
      if (state == states.end()) continue;
      for (at::Tensor& tensor : kept(*state->second)) {
        if (tensor.defined()) found.push_back({parameter, std::move(tensor)});
      }
    }
  }
  return found;
}

}  // namespace peakline
