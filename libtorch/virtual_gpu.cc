#include "peakline/torch/virtual_gpu.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/version.h>

#include <cstdlib>
#include <utility>

#include "capture/recorder.h"
#include "libtorch/errors.h"
#include "libtorch/planner_files.h"
#include "libtorch/run.h"
#include "vgpu/generator.h"
#include "vgpu/session.h"

namespace peakline {
namespace {

// What an allocator that starts now would be given: torch takes the first that is set.
std::string settings_in_environment() {
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    if (const char* value = std::getenv(name)) return value;
  }
  return "";
}

vgpu::EngineOptions engine_options(const VirtualGpuOptions& options) {
  vgpu::EngineOptions engine;
  engine.memory.devices = options.devices;
  engine.memory.profile = value_or_throw(load_profile(options.gpu));
  const std::string release =
      std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR);
  engine.memory.settings = settings_in_environment();
  engine.memory.config = value_or_throw(
      AllocatorConfig::parse(engine.memory.settings, value_or_throw(parse_torch_version(release))));
  if (!options.memory.empty()) engine.memory.limit = value_or_throw(parse_size(options.memory));
  engine.planner = find_planner();
  engine.clock = options.clock;
  return engine;
}

// What answers over the recording need to know about the devices.
RunInfo facts_of(const vgpu::EngineOptions& options) {
  const DeviceProfile& gpu = options.memory.profile;
  const Bytes all = gpu.total_memory - gpu.context_with_cudnn;
  const std::string limit = std::to_string(options.memory.limit.value_or(all).raw());
  RunInfo facts{{"producer", "virtual"},
                {"gpu", gpu.name},
                {"allocator_conf", options.memory.settings},
                {"allocator_settings", options.memory.config.canonical()}};
  for (int device = 0; device < options.memory.devices; ++device) {
    const std::string name = "cuda:" + std::to_string(device);
    facts["memory_limit." + name] = limit;
    facts["outside_allocator." + name] = std::to_string(gpu.context_with_cudnn.raw());
    if (options.memory.limit) facts["allocator_limit." + name] = limit;
  }
  return facts;
}

void check_device(int device, std::size_t devices) {
  TORCH_CHECK(device >= 0 && static_cast<std::size_t>(device) < devices,
              "there is no cuda:", device, ": the virtual machine has ", devices, " GPU(s)");
}

std::int64_t stat(vgpu::Engine& engine, int device, std::string_view key) {
  check_device(device, static_cast<std::size_t>(engine.devices()));
  for (const auto& [name, value] : engine.memory().stats(device)) {
    if (name == key) return value;
  }
  return 0;
}

std::int64_t answer(const std::vector<std::int64_t>& values, int device) {
  check_device(device, values.size());
  return values[static_cast<std::size_t>(device)];
}

constexpr std::string_view kAllocated = "allocated_bytes.all.peak";
constexpr std::string_view kReserved = "reserved_bytes.all.peak";

std::uint64_t count_unknown(vgpu::Engine& engine) {
  std::uint64_t count = 0;
  for (const auto& [name, times] : engine.unknown_values()) count += times;
  return count;
}

}  // namespace

// What is asked for after the end.
struct VirtualGpu::Answers {
  std::vector<std::int64_t> allocated;
  std::vector<std::int64_t> reserved;
  Timing timing;
  std::uint64_t unknown = 0;
  std::vector<std::string> outputs_only;
};

VirtualGpu::VirtualGpu(const VirtualGpuOptions& options) {
  const vgpu::EngineOptions engine = engine_options(options);
  throw_if_error(vgpu::enter(engine));
  try {
    // torch::manual_seed() before holds for the devices, as it would for CUDA's own generators.
    const std::uint64_t seed = at::detail::getDefaultCPUGenerator().current_seed();
    for (int device = 0; device < options.devices; ++device) {
      at::Generator generator = vgpu::default_generator(device);
      generator.set_current_seed(seed);
    }
    run_ = TorchRun::start({.path = options.path, .is_virtual = true, .info = facts_of(engine)});
    run_->watch();
    vgpu::current_engine()->memory().record_into(capture::current_recorder());
  } catch (...) {
    vgpu::leave();
    throw;
  }
}

// A disk that is full at the end is told by stop(), and not by a destructor.
VirtualGpu::~VirtualGpu() {
  try {
    stop();
  } catch (const std::exception&) {
  }
}

void VirtualGpu::stop() {
  if (answers_) return;
  remember();
  run_->note("unknown_values", std::to_string(answers_->unknown));
  vgpu::current_engine()->memory().record_into(nullptr);
  try {
    run_->stop();
  } catch (...) {
    vgpu::leave();
    throw;
  }
  vgpu::leave();
}

void VirtualGpu::remember() {
  vgpu::Engine& engine = *vgpu::current_engine();
  Answers found;
  for (int device = 0; device < engine.devices(); ++device) {
    found.allocated.push_back(stat(engine, device, kAllocated));
    found.reserved.push_back(stat(engine, device, kReserved));
  }
  found.timing = engine.clock().timing();
  found.unknown = count_unknown(engine);
  const auto names = engine.outputs_only();
  found.outputs_only.assign(names.begin(), names.end());
  answers_ = std::make_unique<Answers>(std::move(found));
}

std::int64_t VirtualGpu::peak_allocated(int device) const {
  if (answers_) return answer(answers_->allocated, device);
  return stat(*vgpu::current_engine(), device, kAllocated);
}

std::int64_t VirtualGpu::peak_reserved(int device) const {
  if (answers_) return answer(answers_->reserved, device);
  return stat(*vgpu::current_engine(), device, kReserved);
}

Timing VirtualGpu::timing() const {
  return answers_ ? answers_->timing : vgpu::current_engine()->clock().timing();
}

std::uint64_t VirtualGpu::unknown_values() const {
  return answers_ ? answers_->unknown : count_unknown(*vgpu::current_engine());
}

std::vector<std::string> VirtualGpu::outputs_only() const {
  if (answers_) return answers_->outputs_only;
  const auto names = vgpu::current_engine()->outputs_only();
  return {names.begin(), names.end()};
}

Summary VirtualGpu::summary() const { return run_->summary(); }
void VirtualGpu::save(const std::string& path) const { run_->save(path); }
std::uint64_t VirtualGpu::steps() const noexcept { return run_->steps(); }

}  // namespace peakline
