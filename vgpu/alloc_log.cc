#include "vgpu/alloc_log.h"

#include <atomic>
#include <mutex>
#include <utility>

namespace peakline::vgpu {
namespace {

constexpr int kNone = -1;
std::atomic<int> logged_device{kNone};

struct Log {
  std::mutex mutex;
  std::vector<AllocStep> steps;
};
Log& log() {
  static Log only;
  return only;
}

void add(int device, AllocStep step) {
  if (logged_device.load(std::memory_order_relaxed) != device) return;
  const std::lock_guard guard(log().mutex);
  log().steps.push_back(step);
}

}  // namespace

void begin_alloc_log(int device) {
  const std::lock_guard guard(log().mutex);
  log().steps.clear();
  logged_device = device;
}

std::vector<AllocStep> end_alloc_log() {
  const std::lock_guard guard(log().mutex);
  logged_device = kNone;
  return std::exchange(log().steps, {});
}

void log_alloc(int device, std::uint64_t address, std::uint64_t bytes) {
  add(device, {address, bytes});
}

void log_free(int device, std::uint64_t address) { add(device, {address, 0}); }

}  // namespace peakline::vgpu
