#include "vgpu/engine.h"

#include <c10/util/Exception.h>

namespace peakline::vgpu {

std::atomic<Engine*> g_engine{nullptr};

namespace {
std::atomic<std::uint64_t> g_serial{0};
}  // namespace

Engine::Engine(const EngineOptions& options)
    : options_(options), serial_(++g_serial), memory_(options.memory) {
  if (options.planner) planner_ = planner_process(*options.planner, options.memory.profile);
}

ValuePolicy Engine::policy() {
  const std::lock_guard guard(mutex_);
  return options_.policy;
}

void Engine::set_policy(const ValuePolicy& policy) {
  const std::lock_guard guard(mutex_);
  options_.policy = policy;
}

void Engine::count_unknown(const std::string& op) {
  const std::lock_guard guard(mutex_);
  ++unknown_[op];
}

std::map<std::string, std::uint64_t> Engine::unknown_values() {
  const std::lock_guard guard(mutex_);
  return unknown_;
}

void Engine::ensure_workspace(int device, std::int64_t stream, std::uint64_t thread,
                              std::string_view key, std::uint64_t bytes, OpName* op) {
  const std::lock_guard guard(mutex_);
  std::uint64_t& address = workspaces_[{device, stream, thread, key}];
  if (address != 0 || bytes == 0) return;
  const std::optional<Block> block =
      memory_.allocate(device, bytes, allocator_stream(stream), op, category::kWorkspace);
  TORCH_CHECK_WITH(OutOfMemoryError, block.has_value(), memory_.out_of_memory(device));
  address = block->address;
}

void Engine::clear_workspaces(std::string_view prefix) {
  const std::lock_guard guard(mutex_);
  for (auto& [key, address] : workspaces_) {
    if (address == 0 || !key.key.starts_with(prefix)) continue;
    memory_.free(key.device, address);
    address = 0;
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
