// Who holds how many bytes right now, by device and category, and how high it went.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "capture/address_map.h"

namespace peakline::dropin {

inline constexpr int kMaxCategories = 16;

struct Usage {
  std::array<std::int64_t, kMaxCategories> by_category{};
  std::int64_t total = 0;
};
using DeviceUsage = std::pair<c10::Device, Usage>;

using BlockKey = std::uint64_t;  // an address: of real memory, or made up (see fake_storage.h)
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

struct Block {
  BlockKey address = 0;
  enum class State : std::uint8_t {
    kPending,   // taken inside an operator that has not ended
    kSetAside,  // the operator ended and did not return it: library memory
    kSettled,
  };
  std::int64_t bytes = 0;     // what the allocator gave
  std::int64_t labelled = 0;  // what the tensor in it needs; the rest of `bytes` has no label
  std::int8_t category = 0;
  std::uint8_t device = 0;
  State state = State::kSettled;
  std::optional<WeakStorage> storage = std::nullopt;
};

// Not thread-safe: the engine locks around it. Reports are not trusted: a free of an unknown block
// is nothing, a second allocation at an address replaces the first.
//
// Peaks: only the highest moment since the last boundary is kept up to date; every boundary folds
// it into all open frames and the overall peak. So an allocation costs one comparison, however many
// modules are open.
class MemBook {
 public:
  // `other`: the category of bytes with no label, or -1 when they stay where their block is.
  explicit MemBook(int other) : other_(other) {}

  // `block.address` is its key. The reference holds until the next add or remove.
  Block& add(Block block, c10::Device device);
  void remove(BlockKey key);
  [[nodiscard]] Block* find(BlockKey key);
  [[nodiscard]] c10::Device device_of(const Block& block) const {
    return devices_[block.device].device;
  }

  // `labelled` is cut to the block's size.
  void relabel(Block& block, int category, std::int64_t labelled);
  void resize(Block& block, std::int64_t bytes);
  void set_aside(Block& block);
  // Books bytes that belong to no block; what callers of upstream's own bookkeeping methods ask
  // for.
  void adjust(c10::Device device, int category, std::int64_t bytes, std::int64_t total);

  // Drops every block whose storage is gone. `externals_only`: of those alive when tracking began.
  void drop_dead(bool externals_only);
  void note_external(BlockKey key) { externals_.push_back(key); }

  [[nodiscard]] std::vector<DeviceUsage> now() const;
  [[nodiscard]] std::int64_t total(c10::Device device) const;
  [[nodiscard]] std::vector<DeviceUsage> peak();
  void reset_peak();

  // A frame is the time a module runs; its peak is the highest moment inside it, per device.
  int open_frame();
  [[nodiscard]] std::vector<DeviceUsage> frame_peak(int frame);
  std::vector<DeviceUsage> close_frame(int frame);  // its peak

 private:
  struct DeviceState {
    c10::Device device;
    Usage now, segment;  // segment: the highest moment since the last boundary
  };
  std::uint8_t device_slot(c10::Device device);
  void book(const Block& block, std::int64_t sign);
  void raise(std::uint8_t device);
  void fold();
  [[nodiscard]] std::vector<DeviceUsage> listed(const std::vector<Usage>& usages) const;

  int other_;
  std::vector<DeviceState> devices_;
  capture::AddressMap<Block> blocks_;
  std::vector<BlockKey> externals_;
  std::vector<Usage> peak_;                                 // by device slot
  std::vector<std::pair<int, std::vector<Usage>>> frames_;  // open ones, by device slot
  int next_frame_ = 0;
};

}  // namespace peakline::dropin
