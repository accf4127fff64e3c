// MemoryTracker's work per operator: its name, and the memory in use when it ended.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "capture/block_book.h"
#include "capture/fork_guard.h"
#include "capture/listeners.h"

namespace peakline::dropin {

struct MemoryLevels {
  std::int64_t allocated = 0, active = 0, reserved = 0;
};

// Logs one row per operator while running. Thread-safe. Create with std::make_shared.
class OpLog final : public capture::Listener, public std::enable_shared_from_this<OpLog> {
 public:
  struct Row {
    std::string prefix;  // the module and the pass, as last told
    const capture::OpFacts* op;
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

  void on_alloc(const capture::MemoryReport& report) override;
  void on_free(const capture::MemoryReport& report) override;
  void on_op_end(const at::RecordFunction& call, const capture::OpFacts& op) override;

 private:
  struct Block {
    std::uint64_t address = 0;
    std::int64_t bytes = 0;
  };

  const ReadLevels read_;
  capture::ForkSafe<std::mutex> mutex_{capture::ForkOrder::kListeners};
  capture::BlockBook<Block, capture::TotalBytes> host_;  // the CPU's blocks since start()
  std::string prefix_;
  std::vector<Row> rows_;
  std::optional<capture::Listening> listening_;
};

// Reads the caching allocator of `type`'s current device; empty where there is none in use.
OpLog::ReadLevels device_levels(c10::DeviceType type);

}  // namespace peakline::dropin
