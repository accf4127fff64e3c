// Stretches of a run that have a name: steps, phases, module calls.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include <peakline/replay.h>
#include <peakline/report.h>

namespace peakline {

// Keeps the spans that the points of a report can show: those with at least one point inside, and
// of these the longest.
class SpansPass : public Pass {
 public:
  // `points`: events in order.
  SpansPass(std::vector<std::uint64_t> points, std::size_t most_spans, std::size_t most_marks);

  void on_module_enter(const Now& now, const ModuleFrame& frame) override;
  void on_module_leave(const Now& now, const ModuleFrame& frame) override;
  void on_step_end(const Now& now) override;
  void on_other(const Now& now, const Event& event) override;
  void finish(const Now& now) override;

  void fill(Report& out);

 private:
  void add(ReportSpan span);
  void keep_longest(std::size_t most);

  std::vector<std::uint64_t> points_;
  std::size_t most_spans_;
  std::size_t most_marks_;
  std::vector<ReportSpan> spans_;
  std::uint64_t left_out_ = 0;
  std::vector<ReportMark> marks_;
  std::unordered_map<std::uint32_t, std::vector<std::uint64_t>> open_;  // enter events by thread
  std::vector<std::uint64_t> open_phases_[3];                           // by Phase
  std::uint64_t step_begin_ = 0;
  std::uint32_t steps_ = 0;
};

}  // namespace peakline
