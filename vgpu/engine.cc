#include "vgpu/engine.h"

#include <c10/util/Exception.h>

#include <cstdlib>

#include <peakline/category.h>

namespace peakline::vgpu {

std::atomic<Engine*> g_engine{nullptr};

namespace {
std::atomic<std::uint64_t> g_serial{0};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}
}  // namespace

Engine::Engine(const EngineOptions& options)
    : options_(options),
      serial_(++g_serial),
      memory_(options.memory),
      clock_(options.memory.profile, options.clock) {
  if (options.planner) planner_ = planner_process(*options.planner, options.memory.profile);
}

ValuePolicy Engine::policy() const {
  const std::lock_guard guard(mutex_);
  return options_.policy;
}

void Engine::ask(const std::string& what, Decides decides) {
  AskedFn listener;
  {
    const std::lock_guard guard(mutex_);
    ++unknown_[what];
    listener = listener_;
  }
  if (listener) listener(what, decides);
}

void Engine::set_listener(AskedFn listener) {
  const std::lock_guard guard(mutex_);
  listener_ = std::move(listener);
}

std::map<std::string, std::uint64_t> Engine::unknown_values() {
  const std::lock_guard guard(mutex_);
  return unknown_;
}

KernelState Engine::kernel_state(const KernelSwitches& switches) {
  const TorchVersion& torch = memory_.config().torch;
  KernelState state;
  state.torch = std::to_string(torch.major) + "." + std::to_string(torch.minor);
  state.switches = switches;
  state.blas = blas_workspaces();
  state.conv_planner = planner_.get();
  return state;
}

BlasWorkspaces Engine::blas_workspaces() {
  BlasWorkspaces found = peakline::blas_workspaces(
      profile(), {environment("CUBLAS_WORKSPACE_CONFIG"), environment("CUBLASLT_WORKSPACE_SIZE"),
                  environment("TORCH_CUBLASLT_UNIFIED_WORKSPACE")});
  const std::lock_guard guard(mutex_);
  found.cublas = cublas_workspace_.value_or(found.cublas);
  found.cublaslt = cublaslt_workspace_.value_or(found.cublaslt);
  return found;
}

void Engine::set_cublas_workspace(std::optional<Bytes> bytes) {
  const std::lock_guard guard(mutex_);
  cublas_workspace_ = bytes;
  ++settings_changes_;
}

void Engine::set_cublaslt_workspace(std::optional<Bytes> bytes) {
  const std::lock_guard guard(mutex_);
  cublaslt_workspace_ = bytes;
  ++settings_changes_;
}

void Engine::note_outputs_only(const std::string& op) {
  const std::lock_guard guard(mutex_);
  outputs_only_.insert(op);
}

std::set<std::string> Engine::outputs_only() {
  const std::lock_guard guard(mutex_);
  return outputs_only_;
}

void Engine::ensure_workspace(int device, std::int64_t stream, std::uint64_t thread,
                              const Step& step, OpName* op) {
  const auto bytes = static_cast<std::uint64_t>(step.bytes.raw());
  if (step.key.starts_with("cublas")) memory_.driver_needs(device, Memory::DriverUse::kCublas);
  const std::lock_guard guard(mutex_);
  Block& held = workspaces_[{device, stream, thread, step.key}];
  if (bytes == 0 || held.bytes >= bytes) return;
  const std::optional<Block> block = memory_.allocate(device, bytes, allocator_stream(stream), op,
                                                      category::kWorkspace, step.certainty);
  TORCH_CHECK_WITH(OutOfMemoryError, block.has_value(), memory_.out_of_memory(device));
  memory_.free(device, held.address);
  held = *block;
}

std::int64_t Engine::new_stream(int device, int priority) {
  memory_.driver_needs(device, Memory::DriverUse::kStreams);
  return streams_.take(device, priority);
}

void Engine::clear_workspaces(std::string_view prefix) {
  const std::lock_guard guard(mutex_);
  for (auto& [key, held] : workspaces_) {
    if (!key.key.starts_with(prefix)) continue;
    memory_.free(key.device, held.address);
    held = {};
  }
}

Engine& engine_or_throw(const char* what) {
  Engine* engine = current_engine();
  TORCH_CHECK(engine != nullptr, what,
              " needs a virtual GPU, and there is none any more: the tensor ",
              "was made inside a peakline.virtual_gpu() block that has ended");
  return *engine;
}

}  // namespace peakline::vgpu
