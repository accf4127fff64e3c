// Who is told of ops and memory besides the recording, which has its own way for the sake of speed.
//
// A listener belongs to the thread that began to listen. It is told of the ops and the allocations of
// that thread and of autograd's threads while they work for it, and of every free, whoever does it.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "capture/host_allocator.h"
#include "capture/op_facts.h"
#include "capture/op_observer.h"

namespace peakline::capture {

struct MemoryReport {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;     // of a free: 0 when the allocator does not say
  std::uint64_t reserved = 0;  // what the device's allocator holds by now; 0 when it does not say
  c10::Device device = c10::kCPU;
};

// Called on the thread where it happens, with or without the GIL, sometimes under an allocator's lock:
// must be thread-safe and must not allocate tensors. What it throws is dropped.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void on_alloc(const MemoryReport&) {}
  virtual void on_free(const MemoryReport&) {}
  virtual void on_out_of_memory(const MemoryReport&) {}
  // At the end of each outermost operator that is not composite: what a TorchDispatchMode would see.
  virtual void on_op_end(const at::RecordFunction&, const OpFacts&) {}
};

struct Wants {
  bool host_memory = false;
  bool device_memory = false;  // and shared memory; takes the profiler's place on this thread
  bool ops = false;
  bool op_outputs = false;
};

// While it lives, the listener is told. Made and destroyed on one thread, with the GIL, in any order
// with others. Throws one sentence when torch.profiler holds the place that is wanted, or the host's
// allocator cannot be watched.
class Listening {
 public:
  Listening(std::shared_ptr<Listener> listener, Wants wants);
  ~Listening();
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

 private:
  std::shared_ptr<Listener> listener_;
  std::shared_ptr<class ListenerScope> scope_;
  std::unique_ptr<HostAllocatorObserver> host_;
  std::optional<OpEnds> ops_;
};

// For those who see something happen. Nearly always nobody listens.
extern std::atomic<int> g_listening;
[[nodiscard]] inline bool somebody_listens() noexcept {
  return g_listening.load(std::memory_order_relaxed) != 0;
}
void tell_host_alloc(const MemoryReport& report) noexcept;
void tell_free(const MemoryReport& report) noexcept;  // every listener
void tell_op_end(const at::RecordFunction& call, const OpFacts& op) noexcept;

}  // namespace peakline::capture
