#include "libtorch/backward_watch.h"

#include <c10/core/AutogradState.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>

#include <memory>
#include <utility>

#include "libtorch/run.h"
#include "vgpu/engine.h"

namespace peakline {
namespace {

namespace autograd = torch::autograd;

// On a virtual GPU backward stays on the thread that calls it: torch's threads for devices are started
// once, perhaps before there was one, and there is nothing to wait for. Nodes run in the same order.
class OnThisThread {
 public:
  explicit OnThisThread(bool on) : on_(on) {
    if (on_) state().set_multithreading_enabled(false);
  }
  ~OnThisThread() {
    if (on_) state().set_multithreading_enabled(before_);
  }
  OnThisThread(const OnThisThread&) = delete;
  OnThisThread& operator=(const OnThisThread&) = delete;

 private:
  static c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }
  bool on_;
  bool before_ = state().get_multithreading_enabled();
};

class Noted {
 public:
  explicit Noted(std::shared_ptr<TorchRun> run) : run_(std::move(run)) {
    if (run_) run_->backward_begins();
  }
  ~Noted() {
    if (run_) run_->backward_ended();
  }
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;

 private:
  std::shared_ptr<TorchRun> run_;
};

// Hands everything on to libtorch's engine, which has the threads.
struct WatchedEngine final : autograd::Engine {
  static autograd::Engine& base() { return get_base_engine(); }

  autograd::variable_list execute(const autograd::edge_list& roots,
                                  const autograd::variable_list& inputs, bool keep_graph,
                                  bool create_graph, bool accumulate_grad,
                                  const autograd::edge_list& outputs) override {
    const OnThisThread here(vgpu::current_engine() != nullptr);
    const Noted noted(TorchRun::current());
    return base().execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<autograd::GraphTask>& task, c10::intrusive_ptr<autograd::Node> root,
      autograd::InputBuffer&& input) override {
    return base().execute_with_graph_task(task, std::move(root), std::move(input));
  }
};

autograd::Engine& watched() {
  static auto* const kEngine = new WatchedEngine;
  return *kEngine;
}

}  // namespace

void BackwardWatch::check() {
  TORCH_CHECK(&autograd::Engine::get_default_engine() == &autograd::Engine::get_base_engine(),
              "peakline::Tracker is for C++ programs, and Python runs in this process; use "
              "peakline.track() there");
}

void BackwardWatch::install() { autograd::set_default_engine_stub(&watched); }

void BackwardWatch::remove() {
  autograd::set_default_engine_stub(&autograd::Engine::get_base_engine);
}

}  // namespace peakline
