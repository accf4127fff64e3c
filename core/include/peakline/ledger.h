// Which bytes are alive, whose they are, and since when.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <peakline/context.h>
#include <peakline/diagnostics.h>
#include <peakline/event.h>
#include <peakline/ids.h>
#include <peakline/units.h>

namespace peakline {

// The circumstances of a block's allocation; with those of its death they say what it was for.
struct Birth {
  std::uint64_t event = 0;    // index in the stream; renewed when the block is resized
  std::uint64_t op_call = 0;  // serial of the op call; 0 outside of ops
  Progress progress;
  std::uint32_t recompute = 0;
  std::optional<std::uint64_t> module_call;  // by the event that entered it; nothing outside of one
  ThreadId thread;
  Era era = Era::kForward;
  CallStack call;  // where the program asked for it
  RegionId region;
};

struct Block {
  BlockId id;
  Bytes bytes;
  Bytes requested;
  Birth birth;
  ModuleId module;  // who was running, unless a label names an owner
  OpId op;
  NameId name;
  StreamId stream;
  DeviceId device;
  CategoryId label;
  Address address;
  Certainty certainty = Certainty::kExact;
};

struct DeviceTotals {
  Bytes allocated;
  Bytes reserved;
  bool knows_reserved = false;
  std::uint64_t segments = 0;  // taken from the driver, over the whole recording
  std::uint64_t retries = 0;
  std::uint64_t ooms = 0;
};

// The live blocks and the totals of each device, replayed from events in order.
// Events are not trusted: one that cannot be true is counted in `diagnostics` and changes nothing.
// Not thread-safe. Blocks that are returned hold until the next event.
class Ledger {
 public:
  explicit Ledger(Diagnostics& diagnostics);

  // Null when the event could not be true.
  const Block* on(const Alloc& alloc, const Birth& birth, ModuleId module, OpId op);
  const Block* on(const Label& label);
  void on(const Sureness& sureness);
  // The block as it was.
  const Block* on(const Free& free);
  // Resizes and renews the birth's event; returns the block as it was before.
  const Block* on(const Resize& resize, std::uint64_t event);
  void on(const SegmentAlloc& segment);
  void on(const SegmentFree& segment);
  void on(const Reserved& reserved);
  void on(const OutOfMemory& oom);

  [[nodiscard]] const Block* find(BlockId id) const noexcept;
  [[nodiscard]] const DeviceTotals& totals(DeviceId device) const noexcept;
  // Devices that an event has named; ids below this are valid for totals().
  [[nodiscard]] std::size_t device_count() const noexcept { return totals_.size(); }
  [[nodiscard]] std::size_t live_count() const noexcept { return used_; }

  // Calls `f(const Block&)` for every live block, in no particular order.
  template <class F>
  void for_each_live(F&& f) const {
    for (const Entry& entry : index_) {
      if (entry.slot != kFree) f(blocks_[entry.slot]);
    }
  }

 private:
  static constexpr std::uint32_t kFree = UINT32_MAX;
  struct Entry {
    BlockId id;
    std::uint32_t slot = kFree;
  };

  [[nodiscard]] std::size_t home(BlockId id) const noexcept;
  [[nodiscard]] std::size_t probe(BlockId id) const noexcept;   // where it is, or would go
  [[nodiscard]] std::size_t locate(BlockId id) const noexcept;  // index_.size() when absent
  std::uint32_t take_slot();
  void erase(std::size_t at);
  void grow();
  DeviceTotals& totals_of(DeviceId device);

  Diagnostics& diagnostics_;
  // Open addressing over slots of `blocks_`: lookups touch one cache line, blocks never move.
  std::vector<Entry> index_;
  unsigned shift_;
  std::size_t used_ = 0;
  std::vector<Block> blocks_;
  std::vector<std::uint32_t> free_slots_;
  std::vector<DeviceTotals> totals_;
  Block before_resize_;
};

}  // namespace peakline
