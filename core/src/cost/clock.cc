#include <algorithm>

#include <peakline/clock.h>

namespace peakline {
namespace {

// Of an op that starts a kernel: one that starts none (a view takes 2 us where an addition takes 8).
constexpr double kViewShare = 0.25;
// Intervals are summed up in batches.
constexpr std::size_t kBatch = 4096;

// torch numbers its own streams by pool (bits 1 to 4); those from the second on have priority.
bool has_priority(Clock::Stream stream) {
  constexpr std::int64_t kNotTorchs = 15;
  const std::int64_t pool = (stream.id >> 1) & kNotTorchs;
  return stream.id > 0 && pool >= 2 && pool < kNotTorchs;
}

// When work starts on an engine that is taken until `free`. With priority it gets the next
// multiprocessors that a running kernel's blocks leave, and what runs there takes as much longer.
double take_turn(double& free, double ready, double us, bool first) {
  if (first && free > ready) {
    free += us;
    return ready;
  }
  const double start = std::max(ready, free);
  free = start + us;
  return start;
}

}  // namespace

std::string_view Timing::bound_by() const noexcept {
  if (elapsed_ms <= 0) return "";
  // The host never had to wait: whatever the GPU does faster changes nothing.
  constexpr double kAllTheTime = 0.97;
  if (host_ms > kAllTheTime * elapsed_ms) return "host";
  const double idle = std::max(0.0, elapsed_ms - gpu_busy_ms);
  const std::pair<double, std::string_view> parts[] = {
      {idle + latency_ms, "host"},
      {compute_ms, "compute"},
      {memory_ms, "memory"},
      {network_ms - hidden_network_ms, "network"},
  };
  return std::max_element(std::begin(parts), std::end(parts),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

Timing operator-(const Timing& later, const Timing& earlier) noexcept {
  Timing t = later;
  t.elapsed_ms -= earlier.elapsed_ms;
  t.host_ms -= earlier.host_ms;
  t.gpu_busy_ms -= earlier.gpu_busy_ms;
  t.network_ms -= earlier.network_ms;
  t.hidden_network_ms -= earlier.hidden_network_ms;
  t.compute_ms -= earlier.compute_ms;
  t.memory_ms -= earlier.memory_ms;
  t.latency_ms -= earlier.latency_ms;
  t.guessed_ms -= earlier.guessed_ms;
  t.flops -= earlier.flops;
  t.kernels -= earlier.kernels;
  t.ops -= earlier.ops;
  return t;
}

void Clock::Busy::add(double start, double end) {
  if (end <= start) return;
  if (!open_.empty() && start <= open_.back().second && start >= open_.back().first) {
    open_.back().second = std::max(open_.back().second, end);
    return;
  }
  open_.emplace_back(start, end);
}

void Clock::Busy::merge() {
  if (open_.size() < 2) return;
  // Those of one stream are in order.
  if (!std::is_sorted(open_.begin(), open_.end())) std::sort(open_.begin(), open_.end());
  std::size_t kept = 0;
  for (std::size_t i = 1; i < open_.size(); ++i) {
    if (open_[i].first <= open_[kept].second) {
      open_[kept].second = std::max(open_[kept].second, open_[i].second);
    } else {
      open_[++kept] = open_[i];
    }
  }
  open_.resize(kept + 1);
}

void Clock::Busy::settle(double until) {
  // A host that never waits runs ahead of the GPU, and nothing can be forgotten. So it is looked at
  // only before the list would have to grow, which doubles it.
  if (open_.size() < std::max(kBatch, open_.capacity())) return;
  merge();
  std::size_t kept = 0;
  for (Interval& interval : open_) {
    settled_ += std::max(0.0, std::min(interval.second, until) - interval.first);
    interval.first = std::max(interval.first, until);
    if (interval.second > interval.first) open_[kept++] = interval;
  }
  open_.resize(kept);
}

double Clock::Busy::total() {
  merge();
  double sum = settled_;
  for (const auto& [start, end] : open_) sum += end - start;
  return sum;
}

double& Clock::end_of(Stream stream) {
  // Most ops go where the one before went.
  if (last_end_ == nullptr || stream != last_) {
    last_ = stream;
    last_end_ = &ends_[stream];
  }
  return *last_end_;
}

void Clock::host(double us) {
  host_ += us;
  issuing_ += us;
}

double Clock::price_us(Issue issue) const {
  if (issue == Issue::kBackward) return rates_.host_backward_us;
  return issue == Issue::kPlain ? rates_.host_plain_us : rates_.host_op_us;
}

void Clock::issue(const OpTime& time, Issue issue) {
  host(price_us(issue) * (time.kernels == 0 ? kViewShare : time.issue) + time.host_us);
  ++sums_.ops;
}

// Where an op starts many kernels, the first ones run while the host starts the others, and the last
// one ends after it was started.
void Clock::op(Stream stream, const OpTime& time, Issue issue) {
  this->issue(time, issue);
  if (time.kernels == 0) return;
  const double first = host_;
  host((time.kernels - 1) * rates_.host_launch_us);
  const double before_last = time.us - time.us / time.kernels;
  place(stream, time, Engine::kKernels, std::max(first, host_ - before_last));
}

void Clock::work(Stream stream, const OpTime& time, Engine engine) {
  place(stream, time, engine, host_);
}

// Between two commands of a full queue the GPU does nothing for a moment. A kernel's time has it, since
// the next one starts after it; a profiler does not count it.
double Clock::gaps_us(const OpTime& time, Engine engine) const {
  if (engine != Engine::kKernels) return 0;
  return std::min(time.us / 2, time.kernels * std::max(0.0, rates_.event_us));
}

// Kernels of several streams share the multiprocessors: what fills them waits its turn, what is only
// latency runs beside. Copies and collectives have engines of their own.
double Clock::place(Stream stream, const OpTime& time, Engine engine, double issued) {
  double& end = end_of(stream);
  const double ready = std::max(issued, end);
  const bool fills = engine != Engine::kKernels || time.bound != TimeBound::kLatency;
  double start = ready;
  if (fills) {
    const bool first = engine == Engine::kKernels && has_priority(stream);
    start = take_turn(engine_free_[{stream.device, engine}], ready, time.us, first);
  }
  end = start + time.us;
  const double done = end - gaps_us(time, engine);
  Busy& own = engine == Engine::kNetwork ? network_ : kernels_;
  if (engine == Engine::kKernels || engine == Engine::kNetwork) own.add(start, done);
  any_.add(start, done);
  if (engine == Engine::kKernels || engine == Engine::kNetwork) both_.add(start, done);
  both_.settle(issued);
  own.settle(issued);
  any_.settle(issued);
  const double ms = time.us / 1e3;
  if (engine == Engine::kKernels) {
    if (time.bound == TimeBound::kCompute) sums_.compute_ms += ms;
    if (time.bound == TimeBound::kMemory) sums_.memory_ms += ms;
    if (time.bound == TimeBound::kLatency) sums_.latency_ms += ms;
  }
  if (time.guessed) sums_.guessed_ms += ms;
  sums_.flops += time.flops;
  sums_.kernels += static_cast<std::uint64_t>(time.kernels);
  if (most_spans_ > 0) {
    if (spans_.size() >= 2 * most_spans_) {
      spans_.erase(spans_.begin(), spans_.end() - static_cast<std::ptrdiff_t>(most_spans_));
    }
    spans_.push_back({stream, engine, time.bound, start, done});
  }
  return end;
}

double Clock::record(Stream stream) const {
  const auto found = ends_.find(stream);
  return std::max(host_, found == ends_.end() ? 0 : found->second);
}

void Clock::wait(Stream stream, double when) {
  double& end = end_of(stream);
  end = std::max(end, when);
}

void Clock::synchronize(double when) {
  host_ = std::max(host_, when);
  host(rates_.host_sync_us);
}

void Clock::synchronize_stream(Stream stream) { synchronize(record(stream)); }

void Clock::synchronize_device(int device) {
  double when = host_;
  for (const auto& [stream, end] : ends_) {
    if (stream.device == device) when = std::max(when, end);
  }
  synchronize(when);
}

double Clock::end_us() const {
  double end = host_;
  for (const auto& [stream, at] : ends_) end = std::max(end, at);
  return end;
}

Timing Clock::timing() {
  Timing now = sums_;
  now.elapsed_ms = end_us() / 1e3;
  now.host_ms = issuing_ / 1e3;
  now.gpu_busy_ms = any_.total() / 1e3;
  now.network_ms = network_.total() / 1e3;
  // What both have in common is counted once in a union of the two.
  const double kernels = kernels_.total() / 1e3;
  now.hidden_network_ms = std::max(0.0, kernels + now.network_ms - both_.total() / 1e3);
  return now;
}

}  // namespace peakline
