// How many bytes are held right now, by device and category, and how high it went.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace peakline::dropin {

inline constexpr int kMaxCategories = 16;

struct Usage {
  std::array<std::int64_t, kMaxCategories> by_category{};
  std::int64_t total = 0;
};
using DeviceUsage = std::pair<c10::Device, Usage>;

// What the drop-ins' book of blocks counts. Not thread-safe.
//
// Only the highest moment since the last boundary is kept up to date; every boundary folds it into
// all open frames and the overall peak. So an allocation costs one comparison, however many modules
// are open.
class UsageCounts {
 public:
  // `other`: the category of bytes with no label, or -1 when they stay where their block is.
  explicit UsageCounts(int other) : other_(other) {}

  // The number of a device, which blocks carry.
  std::uint8_t slot(c10::Device device);
  [[nodiscard]] c10::Device device(std::uint8_t slot) const { return devices_[slot].device; }

  template <class Block>
  void book(const Block& block, std::int64_t sign) {
    const std::int64_t labelled = other_ < 0 ? block.bytes : block.labelled;
    Usage& now = devices_[block.device].now;
    now.by_category[block.category] += sign * labelled;
    if (other_ >= 0) now.by_category[other_] += sign * (block.bytes - labelled);
    now.total += sign * block.bytes;
    raise(block.device);
  }
  // Bytes that belong to no block; what callers of upstream's own bookkeeping methods ask for.
  void adjust(c10::Device device, int category, std::int64_t bytes, std::int64_t total);

  [[nodiscard]] std::vector<DeviceUsage> now() const;
  [[nodiscard]] std::vector<DeviceUsage> peak();
  void reset_peak();

  // A frame is the time a module runs; its peak is the highest moment inside it, per device.
  int open_frame();
  [[nodiscard]] std::vector<DeviceUsage> frame_peak(int frame);
  std::vector<DeviceUsage> close_frame(int frame);  // its peak

 private:
  using Usages = std::vector<Usage>;  // by device slot
  struct DeviceState {
    c10::Device device;
    Usage now, segment;  // segment: the highest moment since the last boundary
  };
  void raise(std::uint8_t slot) {
    DeviceState& state = devices_[slot];
    if (state.now.total > state.segment.total) state.segment = state.now;
  }
  void fold();
  [[nodiscard]] Usages all_now() const;
  [[nodiscard]] std::vector<DeviceUsage> listed(const Usages& usages) const;

  int other_;
  std::vector<DeviceState> devices_;
  Usages peak_;
  std::vector<std::pair<int, Usages>> frames_;  // open ones
  int next_frame_ = 0;
};

}  // namespace peakline::dropin
