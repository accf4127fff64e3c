// The rates of a profile that make the model agree with a measured table.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <peakline/cost.h>
#include <peakline/measured_calls.h>

#include "profile/profile_fields.h"

namespace peakline {
namespace {

// The rates that kernels of the table can tell, the ones that most depend on first. Peaks are the
// data sheet's and stay.
constexpr std::array<std::string_view, 11> kFitted{
    "kernel_us",    "dram_share", "l2_gbps",  "sm_clock_ghz", "tensor_share", "gemm_us",
    "vector_share", "row_share",  "block_us", "reduce_us",    "sm_gbps"};

const profile::Rate& rate_named(std::string_view key) {
  for (const profile::Rate& rate : profile::kRates) {
    if (rate.key == key) return rate;
  }
  return profile::kRates.front();
}

// Every family counts the same, however many calls it has.
class Loss {
 public:
  Loss(const MeasuredTable& table, const std::vector<bool>& rows) : table_(table), rows_(rows) {}

  double operator()(const DeviceProfile& gpu) const {
    std::map<std::string_view, std::pair<double, double>> families;
    for (std::size_t i = 0; i < table_.calls.size(); ++i) {
      const MeasuredCall& call = table_.calls[i];
      if ((!rows_.empty() && !rows_[i]) || call.us <= 0) continue;
      auto& [sum, count] = families[call.family];
      sum += std::abs(std::log(std::max(1e-3, predict(call, gpu)) / call.us));
      count += 1;
    }
    double loss = 0;
    for (const auto& [family, sums] : families) loss += sums.first / sums.second;
    return families.empty() ? 0 : loss / static_cast<double>(families.size());
  }

 private:
  const MeasuredTable& table_;
  const std::vector<bool>& rows_;
};

}  // namespace

double predict(const MeasuredCall& call, const DeviceProfile& gpu) {
  const KernelState state;
  double us = gpu.time.event_us;
  for (const OpCall& op : call.ops) us += op_time(op, gpu, state).us;
  return us;
}

std::vector<double> predict(const MeasuredTable& table, const DeviceProfile& gpu) {
  std::vector<double> times;
  times.reserve(table.calls.size());
  for (const MeasuredCall& call : table.calls) times.push_back(predict(call, gpu));
  return times;
}

DeviceProfile fit_rates(const MeasuredTable& table, const DeviceProfile& start,
                        const std::vector<bool>& rows) {
  const Loss loss(table, rows);
  DeviceProfile best = start;
  double least = loss(best);
  // One rate after another, by steps that shrink.
  for (const double step : {0.2, 0.1, 0.05, 0.025, 0.0125}) {
    for (const std::string_view key : kFitted) {
      const profile::Rate& rate = rate_named(key);
      for (const double factor : {1 + step, 1 / (1 + step)}) {
        for (;;) {
          DeviceProfile tried = best;
          double& value = tried.time.*rate.member;
          value = std::clamp(value * factor, rate.least, rate.most);
          const double now = loss(tried);
          if (now >= least - 1e-6) break;
          least = now;
          best = tried;
        }
      }
    }
  }
  std::erase_if(best.provenance, [](const DeviceProfile::Provenance& entry) {
    return std::find(kFitted.begin(), kFitted.end(), entry.key) != kFitted.end();
  });
  return best;
}

}  // namespace peakline
