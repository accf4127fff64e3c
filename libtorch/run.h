// One run of a C++ program being recorded: what Tracker and VirtualGpu share.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <peakline/summary.h>

#include "capture/session.h"
#include "libtorch/step_counter.h"

namespace peakline {

struct RunOptions {
  std::string path;
  bool ops = true;
  bool is_virtual = false;  // its device's allocations are told by the virtual GPU
  RunInfo info;
};

// Thread-safe: C++ programs have no GIL that would keep their threads apart.
class TorchRun : public std::enable_shared_from_this<TorchRun> {
 public:
  // The one that is on; null outside.
  static std::shared_ptr<TorchRun> current();
  // Throws one sentence when there is one already, or this process cannot be watched.
  static std::shared_ptr<TorchRun> start(const RunOptions& options);
  ~TorchRun();

  void add(const torch::nn::Module& model);
  void add(const torch::optim::Optimizer& optimizer);
  // What was added is there from before: its memory is written down. From here on things are seen.
  void watch();
  void stop();

  // These are called inside the program's own calls, and never disturb them: what goes wrong here ends
  // the recording, and fault() says why.
  //
  // Of a module that is called: known from before, or met now below the module that calls it.
  ModuleId identify(const torch::nn::Module& module) noexcept;
  void note_inputs(const std::vector<at::Tensor>& inputs) noexcept;
  void backward_begins() noexcept;
  void backward_ended() noexcept;
  void step_begins(const torch::optim::Optimizer& optimizer) noexcept;
  void step_ended(const torch::optim::Optimizer& optimizer, bool completed) noexcept;
  void closure(bool begins) noexcept;  // of an optimizer: forward, although an optimizer called it
  void note(const std::string& key, const std::string& value) noexcept;

  // Why the recording ended early; empty while all is well.
  [[nodiscard]] std::string fault() const;
  [[nodiscard]] Summary summary() const;
  void save(const std::string& path) const;
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_.done(); }

 private:
  struct Known {
    std::weak_ptr<const torch::nn::Module> alive;  // expired at once for one that nobody shares
    bool shared = false;
    ModuleId id;
    std::string path;
  };

  explicit TorchRun(const RunOptions& options) : is_virtual_(options.is_virtual) {}
  template <class Note>
  void undisturbing(Note&& note) noexcept;
  [[nodiscard]] std::string known_fault() const;
  void tell_of_fault();
  ModuleId meet(const torch::nn::Module& module);
  [[nodiscard]] const Known* find(const torch::nn::Module& module) const;
  void add_tree(const torch::nn::Module& module, const std::string& path, ModuleId parent,
                const std::string& below_root);
  void add_tensors(const torch::nn::Module& module, ModuleId id, const std::string& below_root);
  void add_parameters(const torch::optim::Optimizer& optimizer);
  std::string new_root(const std::string& type);

  bool is_virtual_;
  std::shared_ptr<capture::Spool> spool_;
  mutable std::mutex mutex_;
  std::unique_ptr<capture::Session> session_;
  std::unordered_map<const torch::nn::Module*, Known> modules_;
  std::unordered_map<std::string, int> roots_;  // by type
  std::vector<const torch::optim::Optimizer*> given_;
  std::unordered_map<const torch::optim::Optimizer*, std::size_t> met_;  // with how many parameters
  StepCounter steps_;
  int backward_depth_ = 0;
  bool stopped_ = false;
  bool told_ = false;         // of a fault
  std::string ending_fault_;  // of the last write, which stop() makes
};

// "Linear" of a torch::nn::LinearImpl, as Python names it.
std::string type_name(const torch::nn::Module& module);

// Every tensor that an optimizer of torch's keeps. Of others the recording knows by their life.
std::vector<capture::StateTensor> state_of(const torch::optim::Optimizer& optimizer);

}  // namespace peakline
