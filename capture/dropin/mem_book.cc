#include "capture/dropin/mem_book.h"

#include <algorithm>

namespace peakline::dropin {
namespace {

void keep_higher(Usage& kept, const Usage& seen) {
  if (seen.total > kept.total) kept = seen;
}

}  // namespace

std::uint8_t MemBook::device_slot(c10::Device device) {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].device == device) return static_cast<std::uint8_t>(i);
  }
  devices_.push_back({device, {}, {}});
  return static_cast<std::uint8_t>(devices_.size() - 1);
}

void MemBook::book(const Block& block, std::int64_t sign) {
  Usage& usage = devices_[block.device].now;
  const std::int64_t labelled = other_ < 0 ? block.bytes : block.labelled;
  usage.by_category[block.category] += sign * labelled;
  if (other_ >= 0) usage.by_category[other_] += sign * (block.bytes - labelled);
  usage.total += sign * block.bytes;
}

void MemBook::raise(std::uint8_t device) {
  DeviceState& state = devices_[device];
  if (state.now.total > state.segment.total) state.segment = state.now;
}

Block& MemBook::add(Block block, c10::Device device) {
  remove(block.address);
  block.device = device_slot(device);
  block.labelled = std::min(block.labelled, block.bytes);
  book(block, +1);
  raise(block.device);
  return blocks_.insert(std::move(block));
}

void MemBook::remove(BlockKey key) {
  const Block* found = find(key);
  if (found == nullptr) return;
  book(*found, -1);
  blocks_.erase(found);
}

Block* MemBook::find(BlockKey key) { return key == 0 ? nullptr : blocks_.find(key); }

void MemBook::relabel(Block& block, int category, std::int64_t labelled) {
  book(block, -1);
  block.category = static_cast<std::int8_t>(category);
  block.labelled = std::min(labelled, block.bytes);
  block.state = Block::State::kSettled;
  book(block, +1);
}

void MemBook::resize(Block& block, std::int64_t bytes) {
  book(block, -1);
  block.bytes = bytes;
  block.labelled = std::min(block.labelled, bytes);
  book(block, +1);
  raise(block.device);
}

void MemBook::set_aside(Block& block) {
  block.state = Block::State::kSetAside;
  if (other_ < 0) return;
  book(block, -1);
  block.labelled = 0;
  book(block, +1);
}

void MemBook::adjust(c10::Device device, int category, std::int64_t bytes, std::int64_t total) {
  const std::uint8_t slot = device_slot(device);
  devices_[slot].now.by_category[category] += bytes;
  devices_[slot].now.total += total;
  raise(slot);
}

void MemBook::drop_dead(bool externals_only) {
  const auto dead = [](const Block& block) { return block.storage && block.storage->expired(); };
  if (externals_only) {
    std::erase_if(externals_, [&](BlockKey key) {
      Block* block = find(key);
      if (block == nullptr) return true;
      if (!dead(*block)) return false;
      remove(key);
      return true;
    });
    return;
  }
  std::vector<BlockKey> gone;
  blocks_.for_each([&](const Block& block) {
    if (dead(block)) gone.push_back(block.address);
  });
  for (BlockKey key : gone) remove(key);
}

std::vector<DeviceUsage> MemBook::listed(const std::vector<Usage>& usages) const {
  std::vector<DeviceUsage> result;
  for (std::size_t i = 0; i < usages.size(); ++i) {
    if (usages[i].total != 0) result.emplace_back(devices_[i].device, usages[i]);
  }
  return result;
}

std::vector<DeviceUsage> MemBook::now() const {
  std::vector<DeviceUsage> result;
  for (const DeviceState& state : devices_) {
    if (state.now.total != 0) result.emplace_back(state.device, state.now);
  }
  return result;
}

std::int64_t MemBook::total(c10::Device device) const {
  for (const DeviceState& state : devices_) {
    if (state.device == device) return state.now.total;
  }
  return 0;
}

void MemBook::fold() {
  peak_.resize(devices_.size());
  for (auto& [id, peaks] : frames_) peaks.resize(devices_.size());
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    keep_higher(peak_[i], devices_[i].segment);
    for (auto& [id, peaks] : frames_) keep_higher(peaks[i], devices_[i].segment);
    devices_[i].segment = devices_[i].now;
  }
}

std::vector<DeviceUsage> MemBook::peak() {
  fold();
  return listed(peak_);
}

void MemBook::reset_peak() {
  fold();
  for (std::size_t i = 0; i < devices_.size(); ++i) peak_[i] = devices_[i].now;
}

int MemBook::open_frame() {
  fold();
  std::vector<Usage> peaks;
  for (const DeviceState& state : devices_) peaks.push_back(state.now);
  frames_.emplace_back(next_frame_, std::move(peaks));
  return next_frame_++;
}

std::vector<DeviceUsage> MemBook::frame_peak(int frame) {
  fold();
  for (const auto& [id, peaks] : frames_) {
    if (id == frame) return listed(peaks);
  }
  return {};
}

std::vector<DeviceUsage> MemBook::close_frame(int frame) {
  std::vector<DeviceUsage> result = frame_peak(frame);
  std::erase_if(frames_, [&](const auto& open) { return open.first == frame; });
  return result;
}

}  // namespace peakline::dropin
