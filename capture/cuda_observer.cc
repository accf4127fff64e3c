#include "capture/cuda_observer.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <array>

#include "capture/cuda_trace.h"
#include "capture/op_observer.h"

namespace peakline::capture {
namespace {

using c10::DebugInfoKind;
using c10::ThreadLocalDebugInfo;
namespace profiler = torch::profiler::impl;

// torch casts what is in the profiler's place to ProfilerStateBase, so it has to be one.
class SlotObserver : public profiler::ProfilerStateBase {
 public:
  SlotObserver(Recorder& recorder, Devices& devices)
      : ProfilerStateBase(profiler::ProfilerConfig(profiler::ProfilerState::CPU,
                                                   /*report_input_shapes=*/false,
                                                   /*profile_memory=*/true)),
        serial_(recorder.serial()),
        devices_(devices) {}

  profiler::ActiveProfilerType profilerType() override {
    return profiler::ActiveProfilerType::NONE;
  }

  void reportMemoryUsage(void* data, std::int64_t bytes, std::size_t /*total_allocated*/,
                         std::size_t total_reserved, c10::Device device) override {
    Recorder* recorder = mine();
    if (recorder == nullptr || !device.is_cuda()) return;  // host memory is seen elsewhere
    const DeviceId where = devices_.cuda(device.index());
    const auto address = reinterpret_cast<std::uint64_t>(data);
    if (bytes >= 0) {
      const auto size = static_cast<std::uint64_t>(bytes);
      push_inside_ops(*recorder, {.address = address,
                                  .size = size,
                                  .extra = size,
                                  .kind = RawKind::kAlloc,
                                  .device = where.raw()});
    } else {
      recorder->free(where, address, static_cast<std::uint64_t>(-bytes));
    }
    reserved(*recorder, where, total_reserved);
  }

  void reportOutOfMemory(std::int64_t bytes, std::size_t, std::size_t,
                         c10::Device device) override {
    Recorder* recorder = mine();
    if (recorder == nullptr || !device.is_cuda()) return;
    recorder->push({.size = static_cast<std::uint64_t>(bytes),
                    .kind = RawKind::kOutOfMemory,
                    .device = devices_.cuda(device.index()).raw()});
  }

 private:
  Recorder* mine() const noexcept {
    Recorder* recorder = current_recorder();
    return recorder != nullptr && recorder->serial() == serial_ ? recorder : nullptr;
  }

  void reserved(Recorder& recorder, DeviceId where, std::size_t bytes) {
    std::atomic<std::uint64_t>& last = reserved_[where.raw()];
    if (last.exchange(bytes, std::memory_order_relaxed) == bytes) return;
    recorder.push({.size = bytes, .kind = RawKind::kReserved, .device = where.raw()});
  }

  std::uint64_t serial_;
  Devices& devices_;
  std::array<std::atomic<std::uint64_t>, 256> reserved_{};
};

// Alive as long as any thread may hold it.
std::shared_ptr<SlotObserver> g_slot_observer;

bool slot_is_ours() noexcept {
  return g_slot_observer != nullptr &&
         ThreadLocalDebugInfo::get(DebugInfoKind::PROFILER_STATE) == g_slot_observer.get();
}

}  // namespace

bool CudaObserver::has_trace() noexcept { return CudaTrace::available(); }

Result<std::unique_ptr<CudaObserver>> CudaObserver::start(Recorder& recorder, Devices& devices,
                                                          bool trace) {
  std::unique_ptr<CudaObserver> observer(new CudaObserver);
  if (trace && CudaTrace::available()) {
    CudaTrace::start(devices);
    return observer;
  }
  if (ThreadLocalDebugInfo::get(DebugInfoKind::PROFILER_STATE) != nullptr) {
    return unsupported(
        "torch.profiler is running, and peakline can see this CUDA memory only in the profiler's "
        "place; end the profiler before tracking");
  }
  g_slot_observer = std::make_shared<SlotObserver>(recorder, devices);
  ThreadLocalDebugInfo::_push(DebugInfoKind::PROFILER_STATE, g_slot_observer);
  observer->in_slot_ = true;
  return observer;
}

CudaObserver::~CudaObserver() {
  CudaTrace::stop();
  // What was put above ours and not taken away again hides it; then it stays, and writes nothing.
  if (in_slot_ && slot_is_ours()) ThreadLocalDebugInfo::_pop(DebugInfoKind::PROFILER_STATE);
}

}  // namespace peakline::capture
