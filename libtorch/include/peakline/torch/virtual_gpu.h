// A GPU that is not there, for C++ programs that want one.
//
//     peakline::VirtualGpu gpu({.gpu = "h100", .memory = "24GiB"});
//     GPT model(config);
//     model->to(torch::kCUDA);      // and train as ever: nothing is computed on the device
//     std::cout << gpu.peak_reserved() << " bytes\n";
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <peakline/clock.h>
#include <peakline/summary.h>
#include <peakline/torch/api.h>
#include <peakline/torch/module_call.h>

namespace peakline {

struct VirtualGpuOptions {
  std::string gpu = "h200";  // a known name, or the path of a profile (.toml)
  std::string memory;        // caps what the allocator may reserve, "24GiB"; empty: the GPU's own
  int devices = 1;           // 1 to 8
  std::string path;          // where the recording is written; empty: a nameless file
  bool clock = true;         // how long it would take, too
};

// While it lives, CUDA devices of this process are virtual: a CUDA tensor is a shape with an address
// from torch's caching allocator, simulated for that GPU. torch::OutOfMemoryError is thrown where the
// real one would be. The run is recorded as a Tracker does it. At most one at a time; what cannot be
// done is a c10::Error with one sentence.
//
// Tensors of the device may outlive it and be let go of; using them is an error.
class PEAKLINE_TORCH_API VirtualGpu {
 public:
  explicit VirtualGpu(const VirtualGpuOptions& options = {});
  ~VirtualGpu();
  VirtualGpu(const VirtualGpu&) = delete;
  VirtualGpu& operator=(const VirtualGpu&) = delete;

  // The recording is complete, and torch is as it was before. Later calls do nothing.
  void stop();

  // The most so far, as torch.cuda.max_memory_allocated() and max_memory_reserved() tell it.
  [[nodiscard]] std::int64_t peak_allocated(int device = 0) const;
  [[nodiscard]] std::int64_t peak_reserved(int device = 0) const;
  // How long the run so far would have taken.
  [[nodiscard]] Timing timing() const;
  // How often a value was read that nobody can know, such as a loss: 1 was answered.
  [[nodiscard]] std::uint64_t unknown_values() const;
  // Ops that ran and of which only the results are counted, not what their kernels need beside.
  [[nodiscard]] std::vector<std::string> outputs_only() const;

  [[nodiscard]] Summary summary() const;
  void save(const std::string& path) const;
  [[nodiscard]] std::uint64_t steps() const noexcept;

 private:
  struct Answers;
  void remember();

  std::shared_ptr<class TorchRun> run_;
  std::unique_ptr<Answers> answers_;
};

}  // namespace peakline
