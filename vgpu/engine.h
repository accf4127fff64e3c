// The virtual GPU of this process: what is on while a program runs on it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include <peakline/conv_planner.h>
#include <peakline/kernel_memory.h>

#include "vgpu/gpu_clock.h"
#include "vgpu/memory.h"
#include "vgpu/shape_cache.h"
#include "vgpu/streams.h"

namespace peakline::vgpu {

// What a read of a value that cannot be known answers.
struct ValuePolicy {
  double number = 1.0;        // floating point
  std::int64_t whole = 1;     // integers
  std::optional<bool> truth;  // bools; without it comparisons follow from the numbers above
  double nonzero = 1.0;       // share of the elements that count as nonzero
};

// What may come out otherwise because a value was unknown.
enum class Decides : std::uint8_t {
  kNothing,  // nothing that is seen from here: a number that may only be printed
  kNumbers,  // whole numbers that went to the host in a row
  kBranch,   // which way the program goes
  kSize,     // how many of something there are
};

// Hears of every value that was asked for and made up. May throw, to end the program.
using AskedFn = std::function<void(const std::string& what, Decides decides)>;

struct EngineOptions {
  MemoryOptions memory;
  ValuePolicy policy;
  std::uint64_t value_bytes = 2 << 20;  // values of storages up to this size are kept: masks and
                                        // positions of whole batches, but no weights of note
  std::optional<PlannerFiles> planner;  // where cuDNN is installed, and can be asked
  bool clock = true;
};

// Plain numbers; read at any time, exact when nothing runs.
struct Counters {
  std::atomic<std::uint64_t> ops{0};
  std::atomic<std::uint64_t> hits{0};
  std::atomic<std::uint64_t> misses{0};
  std::atomic<std::uint64_t> values{0};  // ops that were computed, since their values are known
};

// One session of the virtual GPU. Made by enter(), gone after leave(); blocks that outlive it know
// it by its serial and leave it alone.
class Engine {
 public:
  explicit Engine(const EngineOptions& options);

  [[nodiscard]] std::uint64_t serial() const noexcept { return serial_; }
  Memory& memory() noexcept { return memory_; }
  // One of torch's pool of streams, which the driver makes room for with the first.
  std::int64_t new_stream(int device, int priority);
  GpuClock& clock() noexcept { return clock_; }
  Counters& counters() noexcept { return counters_; }
  ShapeCache& cache() noexcept { return cache_; }
  [[nodiscard]] const DeviceProfile& profile() const noexcept { return memory_.profile(); }
  // cuDNN itself; null when it is not installed.
  [[nodiscard]] ConvPlanner* conv_planner() const noexcept { return planner_.get(); }
  // All that kernels depend on, under these switches.
  [[nodiscard]] KernelState kernel_state(const KernelSwitches& switches);
  // What torch gives to cuBLAS and cuBLASLt: as the environment says now (scripts set it in their
  // first lines), unless it was set otherwise.
  [[nodiscard]] BlasWorkspaces blas_workspaces();
  void set_cublas_workspace(std::optional<Bytes> bytes);
  void set_cublaslt_workspace(std::optional<Bytes> bytes);
  // How often such a setting was changed: what was remembered before is out of date.
  [[nodiscard]] std::uint64_t settings_changes() const noexcept { return settings_changes_.load(); }
  // A convolution went to cuDNN.
  void note_cudnn() noexcept { used_cudnn_.store(true); }
  [[nodiscard]] bool used_cudnn() const noexcept { return used_cudnn_.load(); }
  // An op ran of which nobody knows what it needs beside its results.
  void note_outputs_only(const std::string& op);
  [[nodiscard]] std::set<std::string> outputs_only();
  [[nodiscard]] int devices() const noexcept { return memory_.devices(); }
  [[nodiscard]] std::uint64_t value_bytes() const noexcept { return options_.value_bytes; }

  [[nodiscard]] ValuePolicy policy() const;
  // A value was asked for that nobody can know. `what` asked, and told the listener.
  void ask(const std::string& what, Decides decides);
  void set_listener(AskedFn listener);
  [[nodiscard]] std::map<std::string, std::uint64_t> unknown_values();
  // Optimizer steps so far, as far as anybody tells.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  void count_step() noexcept { ++steps_; }
  // A stand-in of ours (`assume`) was read as a number of something.
  void use_assumption() noexcept { assumption_used_ = true; }
  [[nodiscard]] bool assumption_used() const noexcept { return assumption_used_; }

  // A library's memory that stays: allocated on first use, freed with the session.
  // `thread` tells the calling thread's handles from others'; 0 where all threads share.
  // One that has become too small is replaced.
  void ensure_workspace(int device, std::int64_t stream, std::uint64_t thread, const Step& step,
                        OpName* op);
  // Frees the workspaces whose key begins so, on all devices and streams.
  void clear_workspaces(std::string_view prefix);

 private:
  struct WorkspaceKey {
    int device;
    std::int64_t stream;
    std::uint64_t thread;
    std::string_view key;
    auto operator<=>(const WorkspaceKey&) const = default;  // NOLINT(modernize-use-nullptr)
  };

  EngineOptions options_;
  std::uint64_t serial_;
  Memory memory_;
  std::unique_ptr<ConvPlanner> planner_;
  StreamPool streams_;
  GpuClock clock_;
  ShapeCache cache_;
  Counters counters_;
  mutable std::mutex mutex_;
  std::atomic<std::uint64_t> steps_{0};
  std::atomic<bool> assumption_used_{false};
  AskedFn listener_;
  std::map<std::string, std::uint64_t> unknown_;
  std::map<WorkspaceKey, Block> workspaces_;
  std::set<std::string> outputs_only_;
  std::optional<Bytes> cublas_workspace_;
  std::optional<Bytes> cublaslt_workspace_;
  std::atomic<std::uint64_t> settings_changes_{0};
  std::atomic<bool> used_cudnn_{false};
};

// The session that is on; null outside. The pointer stays valid while any thread may use it: an
// engine is kept until the next one is entered.
extern std::atomic<Engine*> g_engine;
inline Engine* current_engine() noexcept { return g_engine.load(std::memory_order_acquire); }
// The same, and an error in words when there is none.
Engine& engine_or_throw(const char* what);

}  // namespace peakline::vgpu
