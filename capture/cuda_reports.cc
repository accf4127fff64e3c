#include "capture/cuda_reports.h"

#include <array>

#include "capture/alloc_gate.h"

namespace peakline::capture {
namespace {

class CudaReports final : public Listener {
 public:
  CudaReports(Recorder& recorder, Devices& devices) : recorder_(recorder), devices_(devices) {}

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
    push_failure(recorder_, {.size = report.bytes,
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

std::shared_ptr<Listener> make_cuda_reports(Recorder& recorder, Devices& devices) {
  return std::make_shared<CudaReports>(recorder, devices);
}

}  // namespace peakline::capture
