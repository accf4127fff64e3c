// torch's own optimizers: each step is noted, and goes on to torch (see original.h).
#include <torch/optim.h>

#include <memory>
#include <utility>

#include "libtorch/original.h"
#include "libtorch/run.h"
#include "peakline/torch/module_call.h"

namespace peakline {
namespace {

using Closure = torch::optim::Optimizer::LossClosure;

class ForwardPhase {
 public:
  ForwardPhase() : run_(TorchRun::current()) {
    if (run_) run_->closure(true);
  }
  ~ForwardPhase() {
    if (run_) run_->closure(false);
  }
  ForwardPhase(const ForwardPhase&) = delete;
  ForwardPhase& operator=(const ForwardPhase&) = delete;

 private:
  std::shared_ptr<TorchRun> run_;
};

// A closure runs the model: forward, although an optimizer called it.
Closure as_forward(Closure closure) {
  if (!closure || !torch_detail::tracking()) return closure;
  return [closure = std::move(closure)] {
    const ForwardPhase forward;
    return closure();
  };
}

}  // namespace
}  // namespace peakline

namespace torch::optim {

// Its own name tells a virtual function's place in a table, so the name of its code is spelled out.
#define PEAKLINE_SEEN_STEP(Name, MANGLED)                                                 \
  Tensor Name::step(LossClosure closure) {                                                \
    static const auto kStep =                                                             \
        ::peakline::as_member<Tensor (Name::*)(LossClosure)>(::peakline::next_definition( \
            "_ZN5torch5optim" MANGLED "4stepESt8functionIFN2at6TensorEvEE"));             \
    const ::peakline::OptimizerStep step(*this);                                          \
    return (this->*kStep)(::peakline::as_forward(std::move(closure)));                    \
  }
PEAKLINE_SEEN_STEP(Adagrad, "7Adagrad")
PEAKLINE_SEEN_STEP(Adam, "4Adam")
PEAKLINE_SEEN_STEP(AdamW, "5AdamW")
PEAKLINE_SEEN_STEP(LBFGS, "5LBFGS")
PEAKLINE_SEEN_STEP(RMSprop, "7RMSprop")
PEAKLINE_SEEN_STEP(SGD, "3SGD")
#undef PEAKLINE_SEEN_STEP

}  // namespace torch::optim
