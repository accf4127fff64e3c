// The highest totals within each training step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <peakline/replay.h>

namespace peakline {

struct StepPeak {
  Bytes allocated;
  Bytes reserved;
  std::uint64_t event = 0;  // the first after which that much was allocated
};

// One row per device and completed step, and one for what follows the last step if anything is
// allocated there. Rows beyond kMaxSteps are counted, not kept, so that memory stays bounded.
class StepsPass : public Pass {
 public:
  static constexpr std::size_t kMaxSteps = std::size_t{1} << 20;

  void on_alloc(const Now& now, const Block& block) override;
  void on_reserved(const Now& now, DeviceId device) override;
  void on_step_end(const Now& now) override;
  void finish(const Now& now) override;

  // By device id, then by step.
  [[nodiscard]] const std::vector<std::vector<StepPeak>>& steps() const noexcept { return steps_; }
  [[nodiscard]] std::size_t completed() const noexcept { return completed_; }
  [[nodiscard]] std::size_t unlisted() const noexcept { return unlisted_; }

 private:
  StepPeak& current(DeviceId device);
  void close(const Now& now);

  std::vector<StepPeak> current_;  // by device
  std::vector<std::vector<StepPeak>> steps_;
  std::size_t completed_ = 0;
  std::size_t unlisted_ = 0;
  bool touched_ = false;
};

}  // namespace peakline
