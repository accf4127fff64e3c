#include "capture/cuda_observer.h"

#include <c10/util/Exception.h>

#include <array>

#include "capture/alloc_gate.h"
#include "capture/cuda_trace.h"
#include "capture/listeners.h"

namespace peakline::capture {
namespace {

// Writes what the allocator reports to the profiler's place.
class ReportListener final : public Listener {
 public:
  ReportListener(Recorder& recorder, Devices& devices) : recorder_(recorder), devices_(devices) {}

  void on_alloc(const MemoryReport& report) override {
    if (!report.device.is_cuda()) return;
    const DeviceId where = devices_.cuda(report.device.index());
    push_inside_ops(recorder_, {.address = report.address,
                                .size = report.bytes,
                                .extra = report.bytes,
                                .kind = RawKind::kAlloc,
                                .device = where.raw()});
    reserved(where, report.reserved);
  }
  void on_free(const MemoryReport& report) override {
    if (!report.device.is_cuda()) return;
    const DeviceId where = devices_.cuda(report.device.index());
    recorder_.free(where, report.address, report.bytes);
    reserved(where, report.reserved);
  }
  void on_out_of_memory(const MemoryReport& report) override {
    if (!report.device.is_cuda()) return;
    recorder_.push({.size = report.bytes,
                    .kind = RawKind::kOutOfMemory,
                    .device = devices_.cuda(report.device.index()).raw()});
  }

 private:
  void reserved(DeviceId where, std::uint64_t bytes) {
    std::atomic<std::uint64_t>& last = reserved_[where.raw()];
    if (last.exchange(bytes, std::memory_order_relaxed) == bytes) return;
    recorder_.push({.size = bytes, .kind = RawKind::kReserved, .device = where.raw()});
  }

  Recorder& recorder_;
  Devices& devices_;
  std::array<std::atomic<std::uint64_t>, 256> reserved_{};
};

}  // namespace

Result<std::unique_ptr<CudaObserver>> CudaObserver::start(Recorder& recorder, Devices& devices,
                                                          bool trace) {
  std::unique_ptr<CudaObserver> observer(new CudaObserver);
  if (trace && CudaTrace::available()) {
    CudaTrace::start(devices);
    return observer;
  }
  try {
    observer->reports_.emplace(std::make_shared<ReportListener>(recorder, devices),
                               Wants{.device_memory = true});
  } catch (const c10::Error& refused) {
    return unsupported(refused.what_without_backtrace());
  }
  return observer;
}

CudaObserver::~CudaObserver() { CudaTrace::stop(); }

}  // namespace peakline::capture
