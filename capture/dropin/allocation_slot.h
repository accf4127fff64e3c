// The allocators' reports of real memory, through the slot that torch keeps for its profiler.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace peakline::dropin {

// Told of every block taken (bytes > 0) or given back (bytes < 0), on the thread that did it. Must
// be thread-safe and must not allocate tensors.
class AllocationListener {
 public:
  virtual ~AllocationListener() = default;
  virtual void on_memory(void* ptr, std::int64_t bytes, c10::Device device) = 0;
};

// While it lives, `listener` is told of memory on the constructing thread and on autograd's threads
// working for it. What held the slot before (torch.profiler, another tracker) still gets its
// reports. The CPU allocator reports no free of a block taken before any observer was there.
class AllocationSlot {
 public:
  explicit AllocationSlot(std::shared_ptr<AllocationListener> listener);
  ~AllocationSlot();
  AllocationSlot(const AllocationSlot&) = delete;
  AllocationSlot& operator=(const AllocationSlot&) = delete;

 private:
  class Observer;
  std::shared_ptr<Observer> observer_;
};

}  // namespace peakline::dropin
