#include "vgpu/session.h"

#include <memory>

#include "vgpu/compiled_region.h"
#include "vgpu/cuda_hooks.h"
#include "vgpu/host_memory.h"
#include "vgpu/pinned.h"
#include "vgpu/registration.h"

namespace peakline::vgpu {
namespace {

// Kept until the next one: a thread may still be about to give a block back.
std::unique_ptr<Engine>& kept_engine() {
  static auto* const kEngine = new std::unique_ptr<Engine>;
  return *kEngine;
}

}  // namespace

Status enter(const EngineOptions& options) {
  if (current_engine() != nullptr) {
    return unsupported("a virtual GPU is on already; leave that block before entering another");
  }
  if (options.memory.devices < 1 || options.memory.devices > kMaxDevices) {
    return invalid_input("a virtual machine has 1 to 8 GPUs, and " +
                         std::to_string(options.memory.devices) + " were asked for");
  }
  register_kernels();
  kept_engine() = std::make_unique<Engine>(options);
  ThisThread::reset_all();
  forget_compiled_regions();
  set_virtual_host(false);
  reset_pinned_peak();
  register_factories();
  install_hooks();
  g_engine.store(kept_engine().get(), std::memory_order_release);
  return {};
}

void leave() {
  Engine* engine = current_engine();
  if (engine == nullptr) return;
  engine->memory().record_into(nullptr);
  g_engine.store(nullptr, std::memory_order_release);
  if (engine->conv_planner() != nullptr) engine->conv_planner()->close();
  unregister_factories();
  remove_hooks();
}

}  // namespace peakline::vgpu
