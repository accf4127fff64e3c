#include "report/moments.h"

#include <algorithm>
#include <bit>

namespace peakline {
namespace {

// As on a ruler: every second mark has rank 0, every second of the rest 1, and so on.
std::uint32_t ruler(std::uint64_t index) {
  return index == 0 ? 63 : static_cast<std::uint32_t>(std::countr_zero(index));
}

void add_overview(std::vector<Moment>& moments, const DeviceSummary& device) {
  for (std::size_t i = 0; i < device.timeline.points.size(); ++i) {
    moments.push_back({device.timeline.points[i].highest_event, ruler(i)});
  }
}

// Even spacing. Windows are looked at closely, so they are thinned out one round later.
void add_window(std::vector<Moment>& moments, StepRange window, std::size_t points) {
  const std::uint64_t length = window.last - window.first + 1;
  const std::uint64_t stride =
      std::max<std::uint64_t>(1, length / std::max<std::size_t>(points, 1));
  for (std::uint64_t i = 0; window.first + i * stride <= window.last; ++i) {
    moments.push_back({window.first + i * stride, ruler(i) + 1});
  }
}

std::vector<StepRange> windows(const DeviceSummary& device, const std::vector<StepRange>& steps,
                               std::uint64_t events) {
  if (steps.empty()) {  // no steps: the surroundings of the peak
    const std::uint64_t reach = events / 32;
    const std::uint64_t first = device.peak_event - std::min(device.peak_event, reach);
    return {{first, std::min(device.peak_event + reach, events - 1)}};
  }
  std::vector<StepRange> out{steps.front()};
  for (const StepRange& step : steps) {
    if (step.first <= device.peak_event && device.peak_event <= step.last) out.push_back(step);
  }
  out.push_back(steps.back());
  const auto same = [](StepRange a, StepRange b) { return a.first == b.first; };
  out.erase(std::unique(out.begin(), out.end(), same), out.end());
  return out;
}

void add_step_peaks(std::vector<Moment>& moments, const DeviceSummary& device, std::size_t most) {
  std::vector<const StepRow*> rows;
  for (const StepRow& row : device.steps) rows.push_back(&row);
  std::ranges::stable_sort(rows, std::greater{}, &StepRow::peak_allocated);
  rows.resize(std::min(rows.size(), most));
  // Thinned out after all the others, the lower ones first.
  constexpr std::uint32_t kAboveRulers = 128;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto rank = kAboveRulers + 64 - static_cast<std::uint32_t>(std::bit_width(i));
    moments.push_back({rows[i]->peak_event, rank});
  }
}

}  // namespace

std::vector<Moment> choose_moments(const DeviceSummary& device, const std::vector<StepRange>& steps,
                                   std::uint64_t events, const ReportOptions& options) {
  std::vector<Moment> moments;
  if (events == 0) return moments;
  add_overview(moments, device);
  for (const StepRange& window : windows(device, steps, events)) {
    add_window(moments, window, options.window_points);
  }
  add_step_peaks(moments, device, options.step_peaks);
  moments.push_back({device.peak_event, Moment::kAlways});
  moments.push_back({events - 1, Moment::kAlways});
  std::erase_if(moments, [&](const Moment& moment) { return moment.event >= events; });
  std::ranges::sort(moments, [](const Moment& a, const Moment& b) {
    return a.event != b.event ? a.event < b.event : a.rank > b.rank;
  });
  const auto same = [](const Moment& a, const Moment& b) { return a.event == b.event; };
  moments.erase(std::unique(moments.begin(), moments.end(), same), moments.end());
  return moments;
}

}  // namespace peakline
