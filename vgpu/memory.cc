#include "vgpu/memory.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <array>
#include <span>

#include <peakline/category.h>

namespace peakline::vgpu {
namespace {

constexpr std::uint64_t kTop = std::uint64_t{1} << 56;
constexpr std::uint64_t kRangePerDevice = std::uint64_t{1} << 50;

DriverOptions options_of(const MemoryOptions& options, int device) {
  DriverOptions driver = driver_options(options.profile);
  // A limit above what the GPU has asks for a GPU of this kind with more memory.
  if (options.limit) driver.total = std::max(driver.total, *options.limit + driver.in_use);
  driver.top = Address(kTop - kRangePerDevice * static_cast<std::uint64_t>(device));
  return driver;
}

// Where torch's CUDA allocator tells whoever watches memory on this thread, so does this one.
void report(int device, std::uint64_t address, std::int64_t change, const AllocatorStats& stats) {
  c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(address), change,
                                   static_cast<std::size_t>(stats.allocated_bytes[0].current),
                                   static_cast<std::size_t>(stats.reserved_bytes[0].current),
                                   c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
}

std::int64_t& bytes_of(Confidence& confidence, Certainty certainty) {
  return certainty == Certainty::kModelled ? confidence.modelled : confidence.guessed;
}

}  // namespace

Memory::Memory(const MemoryOptions& options) : options_(options) {
  devices_.resize(static_cast<std::size_t>(options.devices));
  for (int i = 0; i < options.devices; ++i) {
    Device& device = devices_[static_cast<std::size_t>(i)];
    device.model = make_driver_model(options_of(options, i));
    device.allocator = std::make_unique<CachingAllocator>(options.config, *device.model);
    // The host never waits for a virtual GPU, so other streams are always done by the time they
    // are asked (docs/design/virtual-gpu.md).
    device.allocator->set_stream_policy(StreamPolicy::kNextAllocation);
    if (options.limit) device.allocator->set_memory_limit(options.limit);
    device.allocator->on_segment_change(
        [this, i](const SegmentChange& change) { on_segment(i, change); });
  }
}

void Memory::record_into(capture::Recorder* recorder) {
  const std::lock_guard guard(mutex_);
  recorder_ = recorder;
  if (recorder == nullptr) return;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    devices_[i].recorded = recorder->words().device(
        {"cuda:" + std::to_string(i), options_.profile.name, options_.profile.total_memory});
  }
}

void Memory::on_segment(int device, const SegmentChange& change) {
  const bool takes =
      change.kind == SegmentChange::Kind::kAlloc || change.kind == SegmentChange::Kind::kMap;
  note(devices_[static_cast<std::size_t>(device)],
       {takes ? HistoryEvent::Kind::kSegmentAlloc : HistoryEvent::Kind::kSegmentFree,
        change.address.raw(), static_cast<std::uint64_t>(change.bytes.raw()), change.stream.raw()});
  if (!records()) return;
  recorder_->push({.address = change.address.raw(),
                   .size = static_cast<std::uint64_t>(change.bytes.raw()),
                   .id = change.stream.raw(),
                   .kind = takes ? capture::RawKind::kSegmentAlloc : capture::RawKind::kSegmentFree,
                   .device = devices_[static_cast<std::size_t>(device)].recorded.raw()});
}

void Memory::write_alloc(const Device& device, const Block& block, std::uint64_t requested,
                         std::uint32_t stream, OpName* op, CategoryId category) {
  std::array<capture::RawEvent, 4> events;
  std::size_t count = 0;
  if (op != nullptr) {
    if (op->recorder != recorder_->serial()) {
      op->recorder = recorder_->serial();
      op->id = recorder_->words().op(op->text);
    }
    events[count++] = {.id = op->id.raw(), .kind = capture::RawKind::kOpBegin};
  }
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
  if (op != nullptr) events[count++] = {.kind = capture::RawKind::kOpEnd};
  recorder_->push_all(std::span(events.data(), count));
}

void Memory::note_certainty(Device& device, const Block& block, Certainty certainty) {
  if (certainty != Certainty::kExact) {
    const auto bytes = static_cast<std::int64_t>(block.bytes);
    device.unsure[block.address] = {bytes, certainty};
    bytes_of(device.alive, certainty) += bytes;
  }
  const std::int64_t now = device.allocator->stats().allocated_bytes[0].current;
  if (now <= device.peak) return;
  device.peak = now;
  device.at_peak = device.alive;
  device.at_peak.exact = now - device.alive.modelled - device.alive.guessed;
}

void Memory::forget_certainty(Device& device, std::uint64_t address) {
  const auto found = device.unsure.find(address);
  if (found == device.unsure.end()) return;
  bytes_of(device.alive, found->second.second) -= found->second.first;
  device.unsure.erase(found);
}

Confidence Memory::confidence_at_peak(int device) {
  const std::lock_guard guard(mutex_);
  return devices_[static_cast<std::size_t>(device)].at_peak;
}

std::optional<Block> Memory::allocate(int device, std::uint64_t bytes, std::uint32_t stream,
                                      OpName* op, CategoryId category, Certainty certainty) {
  if (bytes == 0) return Block{};
  const std::lock_guard guard(mutex_);
  Device& where = devices_[static_cast<std::size_t>(device)];
  const Allocation got =
      where.allocator->allocate(Bytes(static_cast<std::int64_t>(bytes)), StreamId(stream));
  if (!got.ok()) {
    note(where, {HistoryEvent::Kind::kOutOfMemory, 0, bytes, stream});
    if (records()) {
      recorder_->push(
          {.size = bytes, .kind = capture::RawKind::kOutOfMemory, .device = where.recorded.raw()});
    }
    return std::nullopt;
  }
  const Block block{got.address.raw(), static_cast<std::uint64_t>(got.bytes.raw())};
  note(where, {HistoryEvent::Kind::kAlloc, block.address, bytes, stream});
  note_certainty(where, block, certainty);
  if (records()) write_alloc(where, block, bytes, stream, op, category);
  report(device, block.address, got.bytes.raw(), where.allocator->stats());
  return block;
}

void Memory::free(int device, std::uint64_t address) {
  if (address == 0) return;
  const std::lock_guard guard(mutex_);
  Device& where = devices_[static_cast<std::size_t>(device)];
  const std::int64_t before = where.allocator->stats().allocated_bytes[0].current;
  where.allocator->free(Address(address));
  forget_certainty(where, address);
  note(where, {HistoryEvent::Kind::kFree, address, 0, 0});
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
  for (Device& device : devices_) device.allocator->empty_cache();
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

void Memory::keep_history(bool keep) {
  const std::lock_guard guard(mutex_);
  keeps_history_ = keep;
  for (Device& device : devices_) device.history.clear();
}

std::vector<HistoryEvent> Memory::history(int device) {
  const std::lock_guard guard(mutex_);
  return devices_[static_cast<std::size_t>(device)].history;
}

std::pair<std::int64_t, std::int64_t> Memory::info(int device) {
  const std::lock_guard guard(mutex_);
  const DeviceModel& model = *devices_[static_cast<std::size_t>(device)].model;
  return {model.free().raw(), model.total().raw()};
}

}  // namespace peakline::vgpu
