#include "capture/dropin/allocation_slot.h"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <atomic>
#include <utility>

namespace peakline::dropin {
namespace {

using torch::profiler::impl::ActiveProfilerType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;
using torch::profiler::impl::ProfilerStateBase;

const auto kSlot = c10::DebugInfoKind::PROFILER_STATE;

}  // namespace

// torch casts whatever lies in the slot to ProfilerStateBase, so nothing less will do.
class AllocationSlot::Observer final : public ProfilerStateBase {
 public:
  explicit Observer(std::shared_ptr<AllocationListener> listener)
      : ProfilerStateBase(ProfilerConfig(ProfilerState::CPU, /*report_input_shapes=*/false,
                                         /*profile_memory=*/true)),
        listener_(std::move(listener)),
        // The slot's chain keeps it alive as long as this one lies above it.
        below_(static_cast<c10::MemoryReportingInfoBase*>(
            c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE))) {}

  void reportMemoryUsage(void* ptr, int64_t bytes, size_t total_allocated, size_t total_reserved,
                         c10::Device device) override {
    if (on_.load(std::memory_order_relaxed)) listener_->on_memory(ptr, bytes, device);
    if (below_ != nullptr && below_->memoryProfilingEnabled()) {
      below_->reportMemoryUsage(ptr, bytes, total_allocated, total_reserved, device);
    }
  }

  void reportOutOfMemory(int64_t bytes, size_t total_allocated, size_t total_reserved,
                         c10::Device device) override {
    if (below_ != nullptr && below_->memoryProfilingEnabled()) {
      below_->reportOutOfMemory(bytes, total_allocated, total_reserved, device);
    }
  }

  ActiveProfilerType profilerType() override { return ActiveProfilerType::NONE; }

  void stop() { on_.store(false, std::memory_order_relaxed); }

 private:
  std::shared_ptr<AllocationListener> listener_;
  c10::MemoryReportingInfoBase* below_;
  std::atomic<bool> on_{true};
};

AllocationSlot::AllocationSlot(std::shared_ptr<AllocationListener> listener)
    : observer_(std::make_shared<Observer>(std::move(listener))) {
  // A profiler looks itself up in the slot at every operator; anything above it would break it.
  auto* holder = static_cast<ProfilerStateBase*>(c10::ThreadLocalDebugInfo::get(kSlot));
  TORCH_CHECK(holder == nullptr || holder->profilerType() == ActiveProfilerType::NONE,
              "torch.profiler is running on this thread and holds the place where memory is "
              "reported; stop it before tracking memory");
  c10::ThreadLocalDebugInfo::_push(kSlot, observer_);
}

AllocationSlot::~AllocationSlot() {
  observer_->stop();
  // Something pushed above this one and still there keeps its place: a stopped observer does no
  // harm.
  if (c10::ThreadLocalDebugInfo::get(kSlot) == observer_.get()) {
    c10::ThreadLocalDebugInfo::_pop(kSlot);
  }
}

}  // namespace peakline::dropin
