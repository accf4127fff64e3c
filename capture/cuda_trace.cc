#include "capture/cuda_trace.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <array>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

#include "capture/alloc_gate.h"
#include "capture/op_observer.h"

namespace peakline::capture {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;
using Entry = c10::CachingDeviceAllocator::TraceEntry;

constexpr std::uint64_t kRounding = 512;
// Up to here torch always splits a block, so it counts for what rounding makes of the request.
constexpr std::uint64_t kAlwaysSplit = std::uint64_t{1} << 20;
constexpr std::size_t kMaxDevices = 64;

std::atomic<Devices*> g_devices{nullptr};
std::atomic<bool> g_rounds_otherwise{false};
// What is known of a device between two actions of its allocator. Written under its lock, so plain
// stores do, except that settle() may clear `unsettled`.
struct DeviceState {
  std::atomic<std::uint64_t> actions{0};
  std::atomic<std::uint64_t> unsettled{0};  // which action made a block of uncertain size; 0: none

  // The allocator's lock is held. The number of the action that begins.
  std::uint64_t begin_action() noexcept {
    const std::uint64_t action = actions.load(std::memory_order_relaxed) + 1;
    actions.store(action, std::memory_order_release);
    return action;
  }
};
std::array<DeviceState, kMaxDevices> g_states;
// Of this thread: the device of its last uncertain block, and the address of its last free.
thread_local c10::DeviceIndex t_device __attribute__((tls_model("initial-exec"))) = 0;
thread_local std::uint64_t t_freed __attribute__((tls_model("initial-exec"))) = 0;

DeviceState& state(c10::DeviceIndex device) {
  return g_states[static_cast<std::size_t>(device) % kMaxDevices];
}

// A setting of the allocator's may round sizes in another way than to multiples of 512.
bool settings_round_otherwise() {
  for (const char* variable : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && std::string_view(value).find("round") != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

// Streams are numbered as they appear; the default stream is 0.
std::uint32_t number_of(void* stream) {
  if (stream == nullptr) return 0;
  static std::mutex mutex;
  static std::map<void*, std::uint32_t> numbers;
  const std::lock_guard guard(mutex);
  return numbers.try_emplace(stream, static_cast<std::uint32_t>(numbers.size() + 1)).first->second;
}

RawEvent event(const Entry& entry, RawKind kind, DeviceId device) {
  return {.address = static_cast<std::uint64_t>(entry.addr_),
          .size = entry.size_,
          .id = number_of(entry.stream_),
          .kind = kind,
          .device = device.raw()};
}

// In a callback the allocator's lock is held, and is one that the same thread may take again.
RawEvent total(c10::DeviceIndex index, DeviceId device) {
  const auto stats = caching::getDeviceStats(index);
  return {.size = static_cast<std::uint64_t>(stats.allocated_bytes[0].current),
          .kind = RawKind::kTotal,
          .device = device.raw()};
}

void on_alloc(Recorder& recorder, const Entry& entry, DeviceId device) {
  DeviceState& now = state(entry.device_);
  const std::uint64_t action = now.begin_action();
  // The total does not have this block in it yet, and settles the one before.
  if (now.unsettled.load(std::memory_order_acquire) != 0) {
    recorder.push(total(entry.device_, device));
  }
  const bool certain =
      entry.size_ <= kAlwaysSplit && !g_rounds_otherwise.load(std::memory_order_relaxed);
  RawEvent alloc = event(entry, certain ? RawKind::kAlloc : RawKind::kAllocEstimate, device);
  alloc.extra = alloc.size;
  alloc.size = std::max(kRounding, (alloc.size + kRounding - 1) / kRounding * kRounding);
  push_inside_ops(recorder, alloc);
  now.unsettled.store(certain ? 0 : action, std::memory_order_release);
  if (certain) return;
  t_device = entry.device_;
  settle_at_op_end();
}

void on_free(Recorder& recorder, const Entry& entry, DeviceId device) {
  DeviceState& now = state(entry.device_);
  now.begin_action();
  RawEvent free = event(entry, RawKind::kFree, device);
  free.size = 0;  // it is what was asked for, not what is counted
  t_freed = free.address;
  if (now.unsettled.load(std::memory_order_acquire) == 0) return recorder.push(free);
  now.unsettled.store(0, std::memory_order_release);
  // The total has lost this block already.
  std::array<RawEvent, 2> both{free, total(entry.device_, device)};
  recorder.push_all(both);
}

// Nearly always a free is complete at once, which says nothing new.
bool completes_at_once(const Entry& entry) {
  if (entry.action_ != Entry::FREE_COMPLETED) return false;
  const bool at_once = t_freed == static_cast<std::uint64_t>(entry.addr_);
  t_freed = 0;
  return at_once;
}

// The op that allocated ends. Other threads may be allocating, so this total is only a hint, and
// settles the matter only if the allocator has done nothing else in the meantime.
void settle(Recorder& recorder) {
  Devices* devices = g_devices.load(std::memory_order_acquire);
  DeviceState& then = state(t_device);
  std::uint64_t open = then.unsettled.load(std::memory_order_acquire);
  if (devices == nullptr || open == 0) return;
  const std::uint64_t action = then.actions.load(std::memory_order_acquire);
  RawEvent hint = total(t_device, devices->cuda(t_device));
  hint.extra = 1;
  recorder.push(hint);
  if (then.actions.load(std::memory_order_acquire) == action) {
    then.unsettled.compare_exchange_strong(open, 0, std::memory_order_acq_rel);
  }
}

void on_entry(const Entry& entry) {
  if (completes_at_once(entry)) return;
  Devices* devices = g_devices.load(std::memory_order_acquire);
  Recorder* recorder = current_recorder();
  if (devices == nullptr || recorder == nullptr) return;
  const DeviceId device = devices->cuda(entry.device_);
  switch (entry.action_) {
    case Entry::ALLOC:
      return on_alloc(*recorder, entry, device);
    case Entry::FREE_REQUESTED:
      return on_free(*recorder, entry, device);
    case Entry::FREE_COMPLETED:
      return recorder->push(event(entry, RawKind::kFreeCompleted, device));
    case Entry::SEGMENT_ALLOC:
    case Entry::SEGMENT_MAP:
      return recorder->push(event(entry, RawKind::kSegmentAlloc, device));
    case Entry::SEGMENT_FREE:
    case Entry::SEGMENT_UNMAP:
      return recorder->push(event(entry, RawKind::kSegmentFree, device));
    case Entry::OOM:
      return recorder->push(event(entry, RawKind::kOutOfMemory, device));
    default:
      return;
  }
}

}  // namespace

bool CudaTrace::available() noexcept { return true; }

void CudaTrace::start(Devices& devices) {
  g_rounds_otherwise.store(settings_round_otherwise(), std::memory_order_relaxed);
  for (DeviceState& device : g_states) device.unsettled.store(0, std::memory_order_relaxed);
  set_settle(&settle);
  g_devices.store(&devices, std::memory_order_release);
  attach();
}

void CudaTrace::attach() {
  static bool attached = false;
  if (attached || !caching::get()->initialized()) return;
  caching::attachAllocatorTraceTracker(&on_entry);
  attached = true;
}

void CudaTrace::stop() {
  g_devices.store(nullptr, std::memory_order_release);
  set_settle(nullptr);
}

std::uint32_t CudaTrace::stream_number(std::uint64_t stream) {
  return number_of(reinterpret_cast<void*>(stream));
}

}  // namespace peakline::capture
