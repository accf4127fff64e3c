// MemoryTracker's work per operator: its name, and the memory in use when it ended.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "capture/dropin/allocation_slot.h"
#include "capture/dropin/op_watch.h"

namespace peakline::dropin {

struct MemoryLevels {
  std::int64_t allocated = 0, active = 0, reserved = 0;
};

// Logs one row per operator while running. Thread-safe. Create with std::make_shared.
class OpLog final : public OpListener,
                    public AllocationListener,
                    public std::enable_shared_from_this<OpLog> {
 public:
  struct Row {
    std::string prefix;  // the module and the pass, as last told
    const OpFacts* op;
    MemoryLevels levels;
    // "outside" any backward pass, in "backward", or in one with grad mode on: "recompute".
    const char* moment;
  };
  using ReadLevels = std::function<MemoryLevels()>;

  // `read`: asked after each operator. Without it the log counts the CPU's blocks since start().
  explicit OpLog(ReadLevels read) : read_(std::move(read)) {}

  void start();
  void stop();
  void set_prefix(std::string prefix);
  // Rows since the last call.
  std::vector<Row> take();
  [[nodiscard]] MemoryLevels levels();

  void on_op_end(const at::RecordFunction& call, const OpFacts& op) override;
  void on_memory(void* ptr, std::int64_t bytes, c10::Device device) override;

 private:
  const ReadLevels read_;
  std::atomic<std::int64_t> cpu_bytes_{0};
  std::mutex mutex_;
  std::string prefix_;
  std::vector<Row> rows_;
  std::unique_ptr<OpWatch> watch_;
  std::unique_ptr<AllocationSlot> slot_;
};

// Reads the caching allocator of `type`'s current device; empty where there is none in use.
OpLog::ReadLevels device_levels(c10::DeviceType type);

}  // namespace peakline::dropin
