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
  std::vector<Address> examples =
      {};  // a few of them that are alive as the recording ends, the oldest first
};

// At the end of each step: what do blocks hold that are older than the step? A leak is what rises by
// more blocks and never falls, to the last step. First states of an optimizer rise once, a cache or a
// buffer rises until it is full, and what each step replaces does not rise, or rises by its size alone.
class GrowthPass : public Pass {
 public:
  void on_step_end(const Now& now) override;
  void finish(const Now& now) override;

  // What was still growing as the last whole step ended, the largest first.
  [[nodiscard]] std::vector<Growth> growing() const;
  // Whether a short run may have a leak that one more step would show: a line of which the last two
  // steps have kept everything, and of which no earlier step had anything to keep. What is allocated
  // after the optimizer's step belongs to the next one, so a leak there begins a step later. And what
  // rises, but weighs too little to be sure of in so few steps.
  [[nodiscard]] bool suspects(DeviceId device) const noexcept;

 private:
  // This many rises without a fall make a leak. In a run of three steps two are all there can be, and
  // in one of four for what is allocated after the optimizer's step. There the last step has to have
  // kept something as well, which is a third.
  static constexpr std::uint32_t kRises = 3;
  static constexpr std::uint32_t kRisesOfShortRun = 2;
  static constexpr std::uint32_t kShortRun = 4;
  // Two rises prove little: numbers that a program reports come and go as slowly. So they have to
  // weigh.
  static constexpr Bytes kWeighs{std::int64_t{64} << 10};
  static constexpr std::size_t kExamples = 8;
  // Blocks looked at in all steps together; a longer recording is judged by its first steps.
  static constexpr std::uint64_t kMostWork = std::uint64_t{1} << 32;

  struct Kept {
    Bytes bytes;
    std::uint64_t blocks = 0;
    std::uint64_t fresh = 0;  // blocks of the step that has just ended, which are no growth yet
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
  [[nodiscard]] bool is_light(const Kept& kept) const noexcept;

  std::map<Origin, Course> courses_;
  std::map<Origin, std::vector<Address>> examples_;  // of what grows
  std::uint32_t step_ = 0;                           // the last one judged
  std::uint64_t work_ = 0;
};

}  // namespace peakline
