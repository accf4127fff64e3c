// One op on intervals: what its operands may be, calls of it with numbers in their place, and where
// the numbers that come out go.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "vgpu/values/computation.h"

namespace peakline::vgpu {

// Which number of an interval stands for an operand; kZero is the one closest to zero.
enum class Point : std::uint8_t { kLow, kZero, kHigh, kGuess };

at::Tensor at_point(const Bounds& bounds, Point point);
std::int64_t elements(const Layout& layout);

// For one question; `computation` outlives it.
class BoundsRun {
 public:
  using Numbers = std::vector<at::Tensor>;  // one for each part of each slot, in order, as double
  using Points = std::vector<Point>;        // one for each operand
  using Results = std::vector<Known>;       // one for each slot

  explicit BoundsRun(const Computation& computation)
      : computation_(computation), operands_(computation.operands()) {}

  // Looks at the operands. False when they or the results are of a type that has no intervals.
  bool look();

  [[nodiscard]] const Computation& computation() const noexcept { return computation_; }
  [[nodiscard]] const std::vector<Operand>& operands() const noexcept { return operands_; }
  // What each operand may be; undefined for one that is not there.
  [[nodiscard]] const std::vector<Bounds>& views() const noexcept { return views_; }
  [[nodiscard]] bool is_read(std::size_t operand) const {
    return views_[operand].low.defined() && !operands_[operand].only_written;
  }
  [[nodiscard]] bool is_selector(std::size_t operand) const;
  // Every element has an interval of its own; else one is for all of them.
  [[nodiscard]] bool elementwise() const noexcept { return elementwise_; }

  // Operands that are not known, the same tensor counted once.
  [[nodiscard]] std::size_t variables() const noexcept { return variables_; }
  // The variable that an operand is; -1: it is known.
  [[nodiscard]] int variable_of(std::size_t operand) const { return variable_of_[operand]; }
  [[nodiscard]] bool has_twins() const noexcept { return has_twins_; }

  // `dims`: an operand with one interval for all keeps its number of dimensions.
  [[nodiscard]] Numbers call(const Points& points, bool dims = false) const;
  [[nodiscard]] Numbers call_all(Point point, bool dims = false) const;

  // The results' intervals, put where the op puts its results.
  [[nodiscard]] Results stored(const Numbers& low, const Numbers& guess, const Numbers& high) const;

 private:
  [[nodiscard]] bool has_types_with_bounds();
  void group_variables();
  [[nodiscard]] Bounds view(const Operand& operand) const;
  [[nodiscard]] at::Tensor stand_in(std::size_t number, Point point, bool dims) const;
  [[nodiscard]] Bounds put(const Slot& slot, const Part& part, const std::optional<Bounds>& before,
                           const Bounds& bounds) const;
  [[nodiscard]] Bounds put_uniform(const Slot& slot, const Part& part,
                                   const std::optional<Bounds>& before, const Bounds& bounds) const;
  [[nodiscard]] Bounds rest_of(const Slot& slot) const;

  const Computation& computation_;
  const std::vector<Operand>& operands_;
  bool elementwise_ = true;
  bool has_twins_ = false;
  std::size_t variables_ = 0;
  std::vector<Known> known_;  // the sources
  std::vector<Bounds> views_;
  std::vector<int> variable_of_;
};

}  // namespace peakline::vgpu
