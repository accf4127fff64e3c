#include "capture/cuda_trace.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>

#include "capture/alloc_gate.h"
#include "capture/allocator_watch.h"
#include "capture/call_stacks.h"
#include "capture/op_observer.h"

// Weak: a CPU build of torch does not have them, and then there is nothing to trace.
namespace c10::cuda {
__attribute__((weak)) DeviceIndex device_count() noexcept;
namespace CUDACachingAllocator {
extern __attribute__((weak)) std::atomic<CUDAAllocator*> allocator;
}  // namespace CUDACachingAllocator
}  // namespace c10::cuda

namespace peakline::capture {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;
using Entry = c10::CachingDeviceAllocator::TraceEntry;

constexpr std::size_t kMaxDevices = 64;

std::atomic<Devices*> g_devices{nullptr};
std::array<AllocatorWatch, kMaxDevices> g_watches;
// The device of this thread's last block whose size was open.
thread_local c10::DeviceIndex t_device __attribute__((tls_model("initial-exec"))) = 0;

AllocatorWatch& watch(c10::DeviceIndex device) {
  return g_watches[static_cast<std::size_t>(device) % kMaxDevices];
}

bool torch_has_cuda() {
  return &caching::allocator != nullptr && &c10::cuda::device_count != nullptr;
}

// A setting of the allocator's may round sizes in another way than to multiples of 512. torch knows it
// under whatever name, or by whatever call, it was set.
bool settings_round_plainly() {
  const auto& divisions =
      c10::CachingAllocator::AcceleratorAllocatorConfig::roundup_power2_divisions();
  return std::ranges::all_of(divisions, [](std::size_t parts) { return parts <= 1; });
}

// Streams are numbered as they appear; the default stream is 0.
std::uint32_t number_of(void* stream) {
  if (stream == nullptr) return 0;
  static std::mutex mutex;
  static std::map<void*, std::uint32_t> numbers;
  const std::lock_guard guard(mutex);
  return numbers.try_emplace(stream, static_cast<std::uint32_t>(numbers.size() + 1)).first->second;
}

// In a callback the allocator's lock is held, and is one that the same thread may take again.
AllocatorCounts counts_of(c10::DeviceIndex device) {
  const auto stats = caching::getDeviceStats(device);
  const auto& bytes = stats.allocated_bytes[0];
  return {.allocated = bytes.current,
          .handed_out = bytes.allocated,
          .taken_back = bytes.freed,
          .retries = stats.num_alloc_retries,
          .flushes = stats.num_sync_all_streams};
}

class TracePort final : public AllocatorWatch::Port {
 public:
  TracePort(Recorder& recorder, c10::DeviceIndex device) : recorder_(recorder), device_(device) {}

  AllocatorCounts counts() override { return counts_of(device_); }
  void push(const RawEvent& event) override {
    if (event.kind == RawKind::kOutOfMemory) return push_failure(recorder_, event);
    recorder_.push(event);
  }
  void push_alloc(const RawEvent& event, bool settles) override {
    push_inside_ops(recorder_, event);
    if (!settles) return;
    t_device = device_;
    settle_at_op_end();
  }

 private:
  Recorder& recorder_;
  c10::DeviceIndex device_;
};

std::optional<AllocatorEntry::Action> action_of(Entry::Action action) {
  switch (action) {
    case Entry::ALLOC:
      return AllocatorEntry::Action::kAlloc;
    case Entry::FREE_REQUESTED:
      return AllocatorEntry::Action::kFreeRequested;
    case Entry::FREE_COMPLETED:
      return AllocatorEntry::Action::kFreeCompleted;
    case Entry::SEGMENT_ALLOC:
    case Entry::SEGMENT_MAP:
      return AllocatorEntry::Action::kSegmentAlloc;
    case Entry::SEGMENT_FREE:
    case Entry::SEGMENT_UNMAP:
      return AllocatorEntry::Action::kSegmentFree;
    case Entry::OOM:
      return AllocatorEntry::Action::kOutOfMemory;
    default:
      return std::nullopt;
  }
}

// The op that allocated is over.
void settle(Recorder& recorder) {
  if (g_devices.load(std::memory_order_acquire) == nullptr) return;
  TracePort port(recorder, t_device);
  watch(t_device).settle(port);
}

void on_entry(const Entry& entry) {
  Devices* devices = g_devices.load(std::memory_order_acquire);
  Recorder* recorder = current_recorder();
  if (devices == nullptr || recorder == nullptr) return;
  const std::optional<AllocatorEntry::Action> action = action_of(entry.action_);
  if (!action) return;
  undisturbed(*recorder, [&] {
    TracePort port(*recorder, entry.device_);
    watch(entry.device_)
        .on({.action = *action,
             .address = static_cast<std::uint64_t>(entry.addr_),
             .size = entry.size_,
             .stream = number_of(entry.stream_),
             .device = devices->cuda(entry.device_).raw()},
            port);
  });
}

}  // namespace

bool CudaTrace::start(Devices& devices) {
  if (!torch_has_cuda()) return false;
  // Counting devices would start CUDA, which a program that forks may not want.
  const bool running = caching::get()->initialized();
  const std::size_t used = running ? static_cast<std::size_t>(c10::cuda::device_count()) : 0;
  const bool rounds_plainly = settings_round_plainly();
  for (std::size_t i = 0; i < kMaxDevices; ++i) {
    const auto device = static_cast<c10::DeviceIndex>(i);
    g_watches[i].start(i < used ? counts_of(device) : AllocatorCounts{}, rounds_plainly);
  }
  set_settle(&settle);
  g_devices.store(&devices, std::memory_order_release);
  attach();
  return true;
}

void CudaTrace::finish(Recorder& recorder, int device) {
  if (g_devices.load(std::memory_order_acquire) == nullptr) return;
  const auto index = static_cast<c10::DeviceIndex>(device);
  TracePort port(recorder, index);
  watch(index).finish(port);
}

void CudaTrace::attach() {
  static bool attached = false;
  if (!torch_has_cuda() || attached || !caching::get()->initialized()) return;
  caching::attachAllocatorTraceTracker(&on_entry);
  attached = true;
}

void CudaTrace::stop() {
  g_devices.store(nullptr, std::memory_order_release);
  set_settle(nullptr);
}

std::uint32_t CudaTrace::stream_number(std::uint64_t stream) {
  return number_of(reinterpret_cast<void*>(stream));  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace peakline::capture
