// Which lines keep more with every step.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include <peakline/replay.h>

#include "ledger/line_usage.h"

namespace peakline {

// Where blocks come from: their line, or without one their op and module.
struct Origin {
  DeviceId device;
  LinePlace place;
  OpId op;
  ModuleId module;
  auto operator<=>(const Origin&) const = default;  // NOLINT(modernize-use-nullptr)
};

struct Growth {
  Origin origin;
  Bytes kept;                    // by blocks of earlier steps, without what came only once
  std::uint64_t blocks = 0;      // so many of them
  std::uint32_t first_step = 0;  // whose end found more than the one before; 1 is the first step
  std::uint32_t last_step = 0;
};

// At the end of each step: what do blocks hold that are older than the step? A leak is what rises and
// never falls, to the last step. First states of an optimizer rise once, a cache or a buffer rises
// until it is full, and what each step replaces does not rise at all.
class GrowthPass : public Pass {
 public:
  void on_step_end(const Now& now) override;

  // What was still growing as the last whole step ended, the largest first.
  [[nodiscard]] std::vector<Growth> growing() const;

 private:
  // This many rises without a fall make a leak; in a run of three steps two are all there can be.
  // Two prove little: numbers that a program reports come and go as slowly. So they have to weigh.
  static constexpr std::uint32_t kRises = 3;
  static constexpr std::uint32_t kShortRun = 3;
  static constexpr Bytes kWeighs{std::int64_t{64} << 10};
  // Blocks looked at in all steps together; a longer recording is judged by its first steps.
  static constexpr std::uint64_t kMostWork = std::uint64_t{1} << 32;

  struct Kept {
    Bytes bytes;
    std::uint64_t blocks = 0;
  };
  struct Course {
    Kept now;
    Kept first;  // after the first rise
    std::uint32_t rises = 0;
    std::uint32_t first_rise = 0;
    std::uint32_t last_rise = 0;
  };
  [[nodiscard]] static std::map<Origin, Kept> kept_by_origin(const Now& now);
  static void follow(Course& course, const Kept& kept, std::uint32_t step);
  [[nodiscard]] static Kept kept_by_rises(const Course& course) noexcept;
  [[nodiscard]] bool grows(const Course& course) const noexcept;

  std::map<Origin, Course> courses_;
  std::uint32_t step_ = 0;  // the last one judged
  std::uint64_t work_ = 0;
};

}  // namespace peakline
