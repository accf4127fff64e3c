#include <algorithm>
#include <string_view>

#include <peakline/allocator_stats.h>

namespace peakline {
namespace {

template <class Stats, class Visitor>
void visit_pool_stats(Stats& stats, Visitor&& visit) {
  visit("active", stats.active);
  visit("active_bytes", stats.active_bytes);
  visit("allocated_bytes", stats.allocated_bytes);
  visit("allocation", stats.allocation);
  visit("inactive_split", stats.inactive_split);
  visit("inactive_split_bytes", stats.inactive_split_bytes);
  visit("requested_bytes", stats.requested_bytes);
  visit("reserved_bytes", stats.reserved_bytes);
  visit("segment", stats.segment);
}

template <class Stats, class Visitor>
void visit_stats(Stats& stats, Visitor&& visit) {
  visit_pool_stats(stats, [&](std::string_view, auto& pools) {
    for (auto& stat : pools) visit(stat);
  });
  visit(stats.oversize_allocations);
  visit(stats.oversize_segments);
}

using Named = std::vector<std::pair<std::string, std::int64_t>>;

void add(Named& named, const std::string& name, const Stat& stat) {
  named.emplace_back(name + ".allocated", stat.allocated);
  named.emplace_back(name + ".current", stat.current);
  named.emplace_back(name + ".freed", stat.freed());
  named.emplace_back(name + ".peak", stat.peak);
}

}  // namespace

void AllocatorStats::reset_peak() noexcept {
  visit_stats(*this, [](Stat& stat) { stat.peak = stat.current; });
}

void AllocatorStats::reset_accumulated() noexcept {
  visit_stats(*this, [](Stat& stat) { stat.reset_accumulated(); });
  num_alloc_retries = num_ooms = num_sync_all_streams = 0;
  num_device_alloc = num_device_free = num_oom_rejections = 0;
}

Named AllocatorStats::named(TorchVersion torch) const {
  Named named;
  visit_pool_stats(*this, [&](std::string_view name, const PoolStats& pools) {
    add(named, std::string(name) + ".all", pools[0]);
    add(named, std::string(name) + ".small_pool", pools[1]);
    add(named, std::string(name) + ".large_pool", pools[2]);
  });
  add(named, "oversize_allocations", oversize_allocations);
  add(named, "oversize_segments", oversize_segments);
  named.emplace_back("max_split_size", max_split_size);
  named.emplace_back("num_alloc_retries", num_alloc_retries);
  named.emplace_back("num_device_alloc", num_device_alloc);
  named.emplace_back("num_device_free", num_device_free);
  if (torch >= TorchVersion{2, 12}) named.emplace_back("num_oom_rejections", num_oom_rejections);
  named.emplace_back("num_ooms", num_ooms);
  named.emplace_back("num_sync_all_streams", num_sync_all_streams);
  std::ranges::sort(named);
  return named;
}

}  // namespace peakline
