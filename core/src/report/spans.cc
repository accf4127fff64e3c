#include "report/spans.h"

#include <fmt/format.h>

#include <algorithm>

namespace peakline {
namespace {

constexpr std::size_t kMaxDepth = 7;  // deeper calls are not drawn

ReportSpan::Kind kind_of(ModulePass pass) {
  switch (pass) {
    case ModulePass::kForward:
      return ReportSpan::Kind::kForward;
    case ModulePass::kBackward:
      return ReportSpan::Kind::kBackward;
    case ModulePass::kRecompute:
      return ReportSpan::Kind::kRecompute;
  }
  return ReportSpan::Kind::kForward;
}

}  // namespace

SpansPass::SpansPass(std::vector<std::uint64_t> points, std::size_t most_spans,
                     std::size_t most_marks)
    : points_(std::move(points)), most_spans_(most_spans), most_marks_(most_marks) {}

void SpansPass::add(ReportSpan span) {
  const auto inside = std::ranges::lower_bound(points_, span.first);
  if (inside == points_.end() || *inside > span.last) {
    ++left_out_;
    return;
  }
  spans_.push_back(span);
  if (spans_.size() >= 2 * most_spans_ + 1) keep_longest(most_spans_);
}

void SpansPass::keep_longest(std::size_t most) {
  if (spans_.size() <= most) return;
  const auto longer = [](const ReportSpan& a, const ReportSpan& b) {
    return a.last - a.first > b.last - b.first;
  };
  std::nth_element(spans_.begin(), spans_.begin() + static_cast<std::ptrdiff_t>(most), spans_.end(),
                   longer);
  left_out_ += spans_.size() - most;
  spans_.resize(most);
}

void SpansPass::on_module_enter(const Now& now, const ModuleFrame& frame) {
  open_[now.thread.raw()].push_back(frame.enter_event);
}

void SpansPass::on_module_leave(const Now& now, const ModuleFrame& frame) {
  std::vector<std::uint64_t>& open = open_[now.thread.raw()];
  const auto found = std::ranges::find(open, frame.enter_event);
  if (found == open.end()) return;
  const auto depth = static_cast<std::size_t>(found - open.begin());
  open.erase(found);
  if (depth > kMaxDepth) {
    ++left_out_;
    return;
  }
  add({kind_of(frame.pass), static_cast<std::uint8_t>(depth), frame.module.raw(), frame.enter_event,
       now.event});
}

void SpansPass::on_step_end(const Now& now) {
  add({ReportSpan::Kind::kStep, 0, ++steps_, step_begin_, now.event});
  step_begin_ = now.event + 1;
}

void SpansPass::on_other(const Now& now, const Event& event) {
  if (const auto* begin = std::get_if<PhaseBegin>(&event.body)) {
    open_phases_[static_cast<std::size_t>(begin->phase)].push_back(now.event);
  } else if (const auto* end = std::get_if<PhaseEnd>(&event.body)) {
    std::vector<std::uint64_t>& open = open_phases_[static_cast<std::size_t>(end->phase)];
    if (open.empty()) return;
    add({ReportSpan::Kind::kPhase, 0, static_cast<std::uint32_t>(end->phase), open.back(),
         now.event});
    open.pop_back();
  } else if (marks_.size() >= most_marks_) {
    return;
  } else if (const auto* marker = std::get_if<Marker>(&event.body)) {
    marks_.push_back({now.event, std::string(now.dictionary.name(marker->name))});
  } else if (const auto* oom = std::get_if<OutOfMemory>(&event.body)) {
    const bool failed = oom->kind == OutOfMemory::Kind::kFailed;
    marks_.push_back({now.event, fmt::format("{}: {} asked for",
                                             failed ? "out of memory" : "cache freed to make room",
                                             format_size(oom->requested))});
  }
}

void SpansPass::finish(const Now& now) {
  if (steps_ > 0 && step_begin_ < now.event) {
    add({ReportSpan::Kind::kStep, 0, steps_ + 1, step_begin_, now.event - 1});
  }
  keep_longest(most_spans_);
}

void SpansPass::fill(Report& out) {
  std::ranges::sort(spans_, [](const ReportSpan& a, const ReportSpan& b) {
    return a.first != b.first ? a.first < b.first : a.depth < b.depth;
  });
  out.spans = std::move(spans_);
  out.spans_left_out = left_out_;
  out.marks = std::move(marks_);
}

}  // namespace peakline
