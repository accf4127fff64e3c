#include "capture/dropin/usage.h"

#include <algorithm>

namespace peakline::dropin {

std::uint8_t UsageCounts::slot(c10::Device device) {
  const auto known = std::ranges::find(devices_, device, &DeviceState::device);
  const auto slot = static_cast<std::uint8_t>(known - devices_.begin());
  if (known == devices_.end()) devices_.push_back({device, {}, {}});
  return slot;
}

void UsageCounts::adjust(c10::Device device, int category, std::int64_t bytes, std::int64_t total) {
  const std::uint8_t at = slot(device);
  devices_[at].now.by_category[category] += bytes;
  devices_[at].now.total += total;
  raise(at);
}

std::vector<DeviceUsage> UsageCounts::listed(const Usages& usages) const {
  std::vector<DeviceUsage> result;
  for (std::size_t i = 0; i < usages.size(); ++i) {
    if (usages[i].total != 0) result.emplace_back(devices_[i].device, usages[i]);
  }
  return result;
}

UsageCounts::Usages UsageCounts::all_now() const {
  Usages usages;
  for (const DeviceState& state : devices_) usages.push_back(state.now);
  return usages;
}

std::vector<DeviceUsage> UsageCounts::now() const { return listed(all_now()); }

void UsageCounts::fold() {
  const auto keep_higher = [this](Usages& kept) {
    kept.resize(devices_.size());
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (devices_[i].segment.total > kept[i].total) kept[i] = devices_[i].segment;
    }
  };
  keep_higher(peak_);
  for (auto& [id, peaks] : frames_) keep_higher(peaks);
  for (DeviceState& state : devices_) state.segment = state.now;
}

std::vector<DeviceUsage> UsageCounts::peak() {
  fold();
  return listed(peak_);
}

void UsageCounts::reset_peak() {
  fold();
  peak_ = all_now();
}

int UsageCounts::open_frame() {
  fold();
  frames_.emplace_back(next_frame_, all_now());
  return next_frame_++;
}

std::vector<DeviceUsage> UsageCounts::frame_peak(int frame) {
  fold();
  const auto open = std::ranges::find(frames_, frame, &std::pair<int, Usages>::first);
  return open == frames_.end() ? std::vector<DeviceUsage>{} : listed(open->second);
}

std::vector<DeviceUsage> UsageCounts::close_frame(int frame) {
  std::vector<DeviceUsage> result = frame_peak(frame);
  std::erase_if(frames_, [&](const auto& open) { return open.first == frame; });
  return result;
}

}  // namespace peakline::dropin
