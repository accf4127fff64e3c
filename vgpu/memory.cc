#include "vgpu/memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <span>

#include <peakline/category.h>

#include "capture/call_stacks.h"
#include "capture/recorder.h"
#include "vgpu/alloc_log.h"
#include "vgpu/compiled_region.h"
#include "vgpu/high_water.h"

namespace peakline::vgpu {
namespace {

constexpr std::uint64_t kTop = std::uint64_t{1} << 56;
constexpr std::uint64_t kRangePerDevice = std::uint64_t{1} << 50;
// torch makes the streams of a pool, 32 for each priority, with the first that is asked for. Seen on
// an H200.
constexpr Bytes kStreams = 64_MiB;

DriverOptions options_of(const MemoryOptions& options, int device) {
  DriverOptions driver = driver_options(options.profile);
  // A limit above what the GPU has asks for a GPU of this kind with more memory.
  if (options.limit) driver.total = std::max(driver.total, *options.limit + driver.in_use);
  driver.most = options.limit;
  driver.startup_segments = std::numeric_limits<int>::max();  // launched() says when
  driver.top = Address(kTop - kRangePerDevice * static_cast<std::uint64_t>(device));
  return driver;
}

// torch's first name for them, else its older one.
std::string settings_of_environment() {
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    if (const char* value = std::getenv(name); value != nullptr) return value;
  }
  return "";
}

// Where torch's CUDA allocator tells whoever watches memory on this thread, so does this one.
void report(int device, std::uint64_t address, std::int64_t change, const AllocatorStats& stats) {
  // An address that was made up. NOLINTNEXTLINE(performance-no-int-to-ptr)
  c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(address), change,
                                   static_cast<std::size_t>(stats.allocated_bytes[0].current),
                                   static_cast<std::size_t>(stats.reserved_bytes[0].current),
                                   c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
}

}  // namespace

Memory::Memory(const MemoryOptions& options) : options_(options) {
  devices_.resize(static_cast<std::size_t>(options.devices));
  make_allocators();
}

void Memory::make_allocators() {
  for (int i = 0; i < devices(); ++i) {
    Device& device = devices_[static_cast<std::size_t>(i)];
    device.model = make_driver_model(options_of(options_, i));
    device.allocator = std::make_unique<CachingAllocator>(options_.config, *device.model);
    // The host never waits for a virtual GPU, so other streams are always done by the time they
    // are asked (docs/design/virtual-gpu.md).
    device.allocator->set_stream_policy(StreamPolicy::kNextAllocation);
    if (device.fraction != 1.0) device.allocator->set_memory_fraction(device.fraction);
    if (options_.limit && !device.allocator->memory_limit()) {
      device.allocator->set_memory_limit(options_.limit);
    }
    device.allocator->on_segment_change(
        [this, i](const SegmentChange& change) { on_segment(i, change); });
  }
}

void Memory::launched_first(int device) {
  const std::lock_guard guard(mutex_);
  launched_[static_cast<std::size_t>(device)].store(true, std::memory_order_relaxed);
  devices_[static_cast<std::size_t>(device)].model->launched();
}

void Memory::driver_takes(int device, DriverUse use) {
  const std::lock_guard guard(mutex_);
  const auto index = static_cast<std::size_t>(device);
  if (taken_[static_cast<std::size_t>(use)][index].exchange(true)) return;
  const DeviceProfile& gpu = options_.profile;
  const bool cublas = use == DriverUse::kCublas;
  devices_[index].model->take_own(cublas ? gpu.context_with_cublas - gpu.context : kStreams);
}

bool Memory::configure(std::string settings, const AllocatorConfig& config) {
  const std::lock_guard guard(mutex_);
  if (settled_) return false;
  options_.settings = std::move(settings);
  options_.config = config;
  make_allocators();
  told_ = true;
  return true;
}

std::string Memory::settings() {
  const std::lock_guard guard(mutex_);
  return options_.settings;
}

// A program may set the environment in its first lines, which is before the first allocation.
void Memory::settle() {
  const std::string text = settings_of_environment();
  if (!told_ && text != options_.settings) {
    const Result<AllocatorConfig> config = AllocatorConfig::parse(text, options_.config.torch);
    TORCH_CHECK(config.ok(), config.status().message());
    options_.settings = text;
    options_.config = *config;
    make_allocators();
  }
  settled_ = true;
}

bool Memory::allocated_since_failure() {
  const std::lock_guard guard(mutex_);
  return allocated_since_failure_;
}

bool Memory::records() const noexcept {
  return recorder_ != nullptr && capture::current_recorder() == recorder_;
}

void Memory::record_into(capture::Recorder* recorder) {
  const std::lock_guard guard(mutex_);
  recorder_ = recorder;
  if (recorder == nullptr) return;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    devices_[i].recorded = recorder->words().device(
        {"cuda:" + std::to_string(i), options_.profile.name, devices_[i].model->total()});
  }
}

void Memory::on_segment(int device, const SegmentChange& change) {
  const bool takes =
      change.kind == SegmentChange::Kind::kAlloc || change.kind == SegmentChange::Kind::kMap;
  if (!records()) return;
  recorder_->push({.address = change.address.raw(),
                   .size = static_cast<std::uint64_t>(change.bytes.raw()),
                   .id = change.stream.raw(),
                   .kind = takes ? capture::RawKind::kSegmentAlloc : capture::RawKind::kSegmentFree,
                   .device = devices_[static_cast<std::size_t>(device)].recorded.raw()});
}

void Memory::write_alloc(const Device& device, const Block& block, std::uint64_t requested,
                         std::uint32_t stream, OpName* op, CategoryId category,
                         Certainty certainty) {
  const capture::TakenStack stack = capture::take_stack_of(*recorder_, block.bytes);
  std::array<capture::RawEvent, 6> events;
  std::size_t count = 0;
  if (op != nullptr) {
    if (op->recorder != recorder_->serial()) {
      op->recorder = recorder_->serial();
      op->id = recorder_->words().op(op->text);
    }
    events[count++] = {.id = op->id.raw(), .kind = capture::RawKind::kOpBegin};
  }
  if (stack.stack != StackId{}) events[count++] = capture::stack_event(stack);
  events[count++] = {.address = block.address,
                     .size = block.bytes,
                     .extra = requested,
                     .id = stream,
                     .kind = capture::RawKind::kAlloc,
                     .device = device.recorded.raw()};
  if (category != CategoryId{}) {
    events[count++] = {.address = block.address,
                       .id = category.raw(),
                       .kind = capture::RawKind::kLabel,
                       .device = device.recorded.raw()};
  }
  if (certainty != Certainty::kExact) {
    events[count++] = {.address = block.address,
                       .id = static_cast<std::uint32_t>(certainty),
                       .kind = capture::RawKind::kSureness,
                       .device = device.recorded.raw()};
  }
  if (op != nullptr) events[count++] = {.kind = capture::RawKind::kOpEnd};
  recorder_->push_all(std::span(events.data(), count));
}

std::optional<Block> Memory::allocate(int device, std::uint64_t bytes, std::uint32_t stream,
                                      OpName* op, CategoryId category, Certainty certainty) {
  if (bytes == 0) return Block{};
  const std::lock_guard guard(mutex_);
  if (!settled_) settle();
  Device& where = devices_[static_cast<std::size_t>(device)];
  const std::int64_t retries = where.allocator->stats().num_alloc_retries;
  const Allocation got =
      where.allocator->allocate(Bytes(static_cast<std::int64_t>(bytes)), StreamId(stream));
  if (where.allocator->stats().num_alloc_retries > retries && records()) {
    recorder_->push(
        {.size = bytes, .kind = capture::RawKind::kRetry, .device = where.recorded.raw()});
  }
  allocated_since_failure_ = got.ok();
  if (!got.ok()) {
    if (records()) {
      capture::push_failure(
          *recorder_,
          {.size = bytes, .kind = capture::RawKind::kOutOfMemory, .device = where.recorded.raw()});
    }
    return std::nullopt;
  }
  const Block block{got.address.raw(), static_cast<std::uint64_t>(got.bytes.raw())};
  certainty = std::max(certainty, region_certainty());
  if (records()) write_alloc(where, block, bytes, stream, op, category, certainty);
  log_alloc(device, block.address, bytes);
  const AllocatorStats& stats = where.allocator->stats();
  raise_high_water(device, stats.allocated_bytes[0].current, stats.reserved_bytes[0].current);
  report(device, block.address, got.bytes.raw(), stats);
  return block;
}

void Memory::free(int device, std::uint64_t address) {
  if (address == 0) return;
  const std::lock_guard guard(mutex_);
  Device& where = devices_[static_cast<std::size_t>(device)];
  const std::int64_t before = where.allocator->stats().allocated_bytes[0].current;
  where.allocator->free(Address(address));
  log_free(device, address);
  const AllocatorStats& stats = where.allocator->stats();
  report(device, address, stats.allocated_bytes[0].current - before, stats);
  if (!records()) return;
  recorder_->push(
      {.address = address, .kind = capture::RawKind::kFree, .device = where.recorded.raw()});
}

std::string Memory::out_of_memory(int device) {
  const std::lock_guard guard(mutex_);
  const auto& info = devices_[static_cast<std::size_t>(device)].allocator->out_of_memory();
  return info ? out_of_memory_message(*info, device) : "CUDA out of memory.";
}

void Memory::record_stream(int device, std::uint64_t address, std::uint32_t stream) {
  const std::lock_guard guard(mutex_);
  devices_[static_cast<std::size_t>(device)].allocator->record_stream(Address(address),
                                                                      StreamId(stream));
}

void Memory::stream_done(int device, std::uint32_t stream) {
  const std::lock_guard guard(mutex_);
  devices_[static_cast<std::size_t>(device)].allocator->stream_done(StreamId(stream));
}

void Memory::synchronize(int device) {
  const std::lock_guard guard(mutex_);
  devices_[static_cast<std::size_t>(device)].allocator->synchronize();
}

void Memory::empty_cache() {
  const std::lock_guard guard(mutex_);
  for (Device& device : devices_) {
    device.allocator->empty_cache();
    if (!records()) continue;
    recorder_->push({.kind = capture::RawKind::kEmptyCache, .device = device.recorded.raw()});
  }
}

void Memory::set_fraction(int device, double fraction) {
  const std::lock_guard guard(mutex_);
  Device& where = devices_[static_cast<std::size_t>(device)];
  where.fraction = fraction;
  where.allocator->set_memory_fraction(fraction);
  if (!where.allocator->memory_limit() && options_.limit) {
    where.allocator->set_memory_limit(options_.limit);
  }
}

double Memory::fraction(int device) {
  const std::lock_guard guard(mutex_);
  return devices_[static_cast<std::size_t>(device)].fraction;
}

void Memory::reset_peak(int device) {
  const std::lock_guard guard(mutex_);
  devices_[static_cast<std::size_t>(device)].allocator->reset_peak_stats();
}

void Memory::reset_accumulated(int device) {
  const std::lock_guard guard(mutex_);
  devices_[static_cast<std::size_t>(device)].allocator->reset_accumulated_stats();
}

std::vector<std::pair<std::string, std::int64_t>> Memory::stats(int device) {
  const std::lock_guard guard(mutex_);
  return devices_[static_cast<std::size_t>(device)].allocator->stats().named(options_.config.torch);
}

std::vector<SegmentView> Memory::segments(int device) {
  const std::lock_guard guard(mutex_);
  return devices_[static_cast<std::size_t>(device)].allocator->segments();
}

std::pair<std::int64_t, std::int64_t> Memory::info(int device) {
  const std::lock_guard guard(mutex_);
  const DeviceModel& model = *devices_[static_cast<std::size_t>(device)].model;
  return {model.free().raw(), model.total().raw()};
}

}  // namespace peakline::vgpu
