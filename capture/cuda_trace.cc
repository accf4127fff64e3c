#include "capture/cuda_trace.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <array>
#include <map>
#include <mutex>
#include <span>

#include "capture/op_observer.h"

namespace peakline::capture {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;
using Entry = c10::CachingDeviceAllocator::TraceEntry;

std::atomic<Devices*> g_devices{nullptr};
bool (*g_reported)() noexcept = nullptr;

struct LastRequest {
  std::uint64_t address = 0;
  CudaTrace::Request request;
};
thread_local LastRequest t_last;

// torch's default rounding. Where an allocator setting makes a block larger, the next total tells.
constexpr std::uint64_t round_up(std::uint64_t bytes) {
  return bytes < 512 ? 512 : (bytes + 511) / 512 * 512;
}

// Streams are numbered as they appear; the default stream is 0.
std::uint32_t stream_number(void* stream) {
  if (stream == nullptr) return 0;
  static std::mutex mutex;
  static std::map<void*, std::uint32_t> numbers;
  const std::lock_guard guard(mutex);
  return numbers.try_emplace(stream, static_cast<std::uint32_t>(numbers.size() + 1)).first->second;
}

RawEvent event(const Entry& entry, RawKind kind, DeviceId device) {
  return {.address = static_cast<std::uint64_t>(entry.addr_),
          .size = entry.size_,
          .id = stream_number(entry.stream_),
          .kind = kind,
          .device = device.raw()};
}

// The allocator's lock is held here, and is one that the same thread may take again.
RawEvent total(const Entry& entry, DeviceId device) {
  const auto stats = caching::getDeviceStats(entry.device_);
  const auto now = stats.allocated_bytes[0].current;
  return {.size = static_cast<std::uint64_t>(now), .kind = RawKind::kTotal, .device = device.raw()};
}

void on_alloc(Recorder& recorder, const Entry& entry, DeviceId device) {
  if (g_reported()) {
    t_last = {static_cast<std::uint64_t>(entry.addr_), {entry.size_, stream_number(entry.stream_)}};
    return;
  }
  // The total does not yet have this block in it.
  recorder.push(total(entry, device));
  RawEvent alloc = event(entry, RawKind::kAllocEstimate, device);
  alloc.extra = alloc.size;
  alloc.size = round_up(alloc.size);
  push_inside_ops(recorder, alloc);
}

void on_free(Recorder& recorder, const Entry& entry, DeviceId device) {
  RawEvent free = event(entry, RawKind::kFree, device);
  free.size = 0;  // what was asked for, not what is counted
  if (g_reported()) return recorder.push(free);
  // The total has already lost this block.
  std::array<RawEvent, 2> both{free, total(entry, device)};
  recorder.push_all(both);
}

void on_entry(const Entry& entry) {
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

void CudaTrace::start(Devices& devices, bool (*reported)() noexcept) {
  g_reported = reported;
  g_devices.store(&devices, std::memory_order_release);
  attach();
}

void CudaTrace::attach() {
  static bool attached = false;
  if (attached || !caching::get()->initialized()) return;
  caching::attachAllocatorTraceTracker(&on_entry);
  attached = true;
}

void CudaTrace::stop() { g_devices.store(nullptr, std::memory_order_release); }

std::uint32_t CudaTrace::stream_number(std::uint64_t stream) {
  return capture::stream_number(reinterpret_cast<void*>(stream));
}

CudaTrace::Request CudaTrace::take_request(std::uint64_t address, std::uint64_t counted) noexcept {
  const LastRequest last = t_last;
  t_last = {};
  return last.address == address ? last.request : Request{counted, 0};
}

}  // namespace peakline::capture
