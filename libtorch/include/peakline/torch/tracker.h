// Exact memory tracking of a C++ training program.
//
//     peakline::Tracker tracker(*model, optimizer);
//     for (...) { ...; loss.backward(); optimizer.step(); }
//     tracker.stop();
//     tracker.save("run.peak");     // for peakline show, report, diff, simulate, ...
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <string>

#include <peakline/summary.h>
#include <peakline/torch/api.h>
#include <peakline/torch/module_call.h>

namespace peakline {

struct TrackOptions {
  std::string path;  // where the recording is written as the run goes on; empty: a nameless file
  bool ops = true;   // with the names of ops
};

// Sees everything that happens while it lives: allocations, ops, module calls, backward, optimizer
// steps. At most one at a time in a process, virtual GPUs included. What cannot be done is a c10::Error
// with one sentence. Made, stopped and destroyed by one thread; other threads are seen as well.
// Whatever fails later, a full disk for one, turns tracking off with one warning, and the program goes on.
class PEAKLINE_TORCH_API Tracker {
 public:
  // Parameters, gradients and state are known by name from the start. Without a model or an optimizer
  // they are found when they are first used. Neither is kept alive.
  explicit Tracker(const TrackOptions& options = {});
  explicit Tracker(const ::torch::nn::Module& model, const TrackOptions& options = {});
  Tracker(const ::torch::nn::Module& model, const ::torch::optim::Optimizer& optimizer,
          const TrackOptions& options = {});
  ~Tracker();
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  // The recording is complete, and torch is as it was before. Later calls do nothing.
  void stop();

  // Why tracking was turned off; empty while all is well.
  [[nodiscard]] std::string fault() const;
  // Of what has run so far, or until tracking was turned off.
  [[nodiscard]] Summary summary() const;
  // A copy of the recording so far at `path`.
  void save(const std::string& path) const;
  [[nodiscard]] std::uint64_t steps() const noexcept;
  // Whether calls of torch's own modules are seen: they are when the program's linker met peakline
  // before torch. Otherwise what they allocate counts for the module around them.
  [[nodiscard]] static bool sees_torch_modules() noexcept;

 private:
  std::shared_ptr<class TorchRun> run_;
};

}  // namespace peakline
