// Makes the recording out of what the observers saw.
#pragma once

#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include <peakline/diagnostics.h>
#include <peakline/event.h>
#include <peakline/ids.h>
#include <peakline/trace.h>

#include "capture/block_book.h"
#include "capture/clock.h"
#include "capture/live_block.h"
#include "capture/module_tracker.h"
#include "capture/node_origins.h"
#include "capture/raw_event.h"

namespace peakline::capture {

// Gives blocks their ids, follows modules into backward, and writes events in order.
// Used by one thread. `writer` outlives it.
class Assembler final : public RawEventOutput, private ModuleTracker::Output {
 public:
  // Blocks of `stacks_from` bytes and more that autograd's threads allocate get the stack of the call of
  // backward; by default none does.
  Assembler(TraceWriter& writer, std::uint8_t host_device,
            std::uint64_t stacks_from = std::numeric_limits<std::uint64_t>::max());

  void on(const RawEvent& raw) override;
  [[nodiscard]] LiveBlock* find(const RawEvent& raw) override {
    return device(raw).blocks.find(raw.address);
  }
  // Closes what is open and writes what was lost.
  void finish();

 private:
  struct Freed {
    std::uint64_t address = 0;
    BlockId block;
  };
  struct Device {
    BlockBook<LiveBlock, TotalBytes> blocks;
    std::uint64_t estimated = 0;  // address of the last block whose size is not certain
    BlockId foreign;              // what was alive before and is known only as a sum
    std::int64_t foreign_bytes = 0;
    [[nodiscard]] std::int64_t total() const noexcept {
      return blocks.counts.total + foreign_bytes;
    }
    Freed freed;                                         // the last one
    std::unordered_map<std::uint64_t, BlockId> waiting;  // freed, not completed, by address
  };

  // A stack, and the same without the library's lines at its end.
  struct Call {
    StackId stack;
    StackId own;
  };
  struct Thread {
    Call call;                           // of its next allocation
    std::vector<std::uint32_t> forward;  // stacks that made the nodes it runs, outermost first
  };

  void emit(std::uint16_t thread, const EventBody& body) override;
  bool on_call(const RawEvent& raw);
  void node_begin(const RawEvent& raw);
  void write_call(const RawEvent& raw);
  [[nodiscard]] CallStack call_of(const RawEvent& raw);
  Thread& thread(const RawEvent& raw);
  void on_memory(const RawEvent& raw);
  void on_allocator(const RawEvent& raw);
  void on_phase(const RawEvent& raw);
  void alloc(const RawEvent& raw);
  void free(const RawEvent& raw);
  void free_waits(const RawEvent& raw);
  void free_completed(const RawEvent& raw);
  void free_foreign(const RawEvent& raw, Device& device);
  void foreign(const RawEvent& raw);
  void resize(const RawEvent& raw);
  void set_size(std::uint16_t thread, Device& device, LiveBlock& block, std::int64_t bytes);
  void total(const RawEvent& raw);
  void label(const RawEvent& raw);
  void sureness(const RawEvent& raw);
  [[nodiscard]] static bool may_be_input(const LiveBlock& block) noexcept;
  Device& device(const RawEvent& raw);

  TraceWriter& writer_;
  ModuleTracker modules_;
  TickScale scale_;
  TimeNs now_;
  std::vector<Device> devices_;
  std::uint64_t last_block_ = 0;
  Diagnostics lost_;
  std::uint8_t host_device_;
  std::uint32_t backwards_ = 0;  // open ones
  std::uint64_t stacks_from_;
  std::vector<Thread> threads_;
  NodeOrigins forward_stacks_;
  Call backward_call_;
};

}  // namespace peakline::capture
