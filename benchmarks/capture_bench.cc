// What tracking costs beside torch: an event on its way into the queue, on the program's threads, and
// the steps of a transformer on their way into the recording, on the thread that writes.
#include <benchmark/benchmark.h>

#include <atomic>
#include <thread>
#include <vector>

#include <peakline/category.h>
#include <peakline/trace.h>

#include "capture/assembler.h"
#include "capture/event_queue.h"
#include "capture/step_tape.h"

namespace peakline::capture {
namespace {

class NullSink final : public Sink {
 public:
  Status write(std::span<const std::byte>) override { return {}; }
  Status flush() override { return {}; }
};

void BM_Push(benchmark::State& state) {
  constexpr std::uint64_t kRecording = 1;
  static EventQueue queue;
  queue.open(kRecording);
  std::atomic<bool> done{false};
  std::thread taker([&] {
    while (!done.load()) {
      if (const EventQueue::Batch* batch = queue.take(1)) {
        benchmark::DoNotOptimize(batch->events().back().ticks);
        queue.release(batch);
      }
    }
  });
  RawEvent event{.address = 0x1000, .size = 512, .kind = RawKind::kAlloc};
  for (auto _ : state) {
    event.address += 512;
    queue.push(kRecording, event);
  }
  done = true;
  taker.join();
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_Push);

// As the program pushes them: forward through modules on one thread, backward on another, a gradient
// for every parameter, an optimizer that takes scratch memory. What comes from the tape while steps
// repeat is left out then.
class Steps {
 public:
  explicit Steps(std::uint32_t layers) : layers_(layers) {}

  const std::vector<RawEvent>& next(bool watched) {
    events_.clear();
    watched_ = watched;
    saved_.clear();
    gradients_.clear();
    forward();
    backward();
    optimizer();
    return events_;
  }

 private:
  static constexpr std::uint32_t kParts = 12;
  static constexpr std::uint64_t kAutogradThread = 1;

  void push(RawEvent raw) {
    raw.ticks = ++ticks_ * 1000;
    events_.push_back(raw);
  }
  std::uint64_t alloc(std::uint16_t thread, std::uint64_t size) {
    if (watched_)
      push({.id = static_cast<std::uint32_t>(2 + size % 7),
            .thread = thread,
            .kind = RawKind::kOpBegin});
    std::uint64_t address = next_address_ += 0x200000;
    if (!free_.empty()) {
      address = free_.back();
      free_.pop_back();
    }
    push({.address = address,
          .size = size,
          .extra = size,
          .thread = thread,
          .kind = RawKind::kAlloc,
          .device = 1});
    if (watched_) push({.thread = thread, .kind = RawKind::kOpEnd});
    return address;
  }
  void free(std::uint16_t thread, std::uint64_t address) {
    push({.address = address, .thread = thread, .kind = RawKind::kFree, .device = 1});
    free_.push_back(address);
  }
  void module(std::uint32_t id, RawKind kind) {
    push({.address = sequence_, .extra = kAutogradThread, .id = id, .kind = kind});
  }
  void forward() {
    module(0, RawKind::kModuleEnter);
    for (std::uint32_t i = 0; i < layers_ * kParts; ++i) {
      module(i + 1, RawKind::kModuleEnter);
      ++sequence_;
      saved_.push_back(alloc(0, std::uint64_t{512} * (1 + i % 5)));
      const std::uint64_t scratch = alloc(0, 4096);
      saved_.push_back(alloc(0, 2048));
      free(0, scratch);
      module(i + 1, RawKind::kModuleLeave);
    }
    module(0, RawKind::kModuleLeave);
  }
  void backward() {
    push({.id = 1, .kind = RawKind::kPhaseBegin});
    for (std::uint32_t i = layers_ * kParts; i-- > 0;) {
      if (watched_) {
        push({.address = sequence_ - (layers_ * kParts - i),
              .extra = kAutogradThread,
              .id = 1,
              .thread = 1,
              .kind = RawKind::kNodeBegin});
      }
      const std::uint64_t scratch = alloc(1, 8192);
      gradients_.push_back(alloc(1, 1024));
      free(1, scratch);
      for (int j = 0; j < 2; ++j) {
        free(1, saved_.back());
        saved_.pop_back();
      }
    }
    push({.kind = RawKind::kLabelWalk});
    for (std::size_t i = 0; watched_ && i < gradients_.size(); ++i) {
      push({.address = gradients_[i],
            .size = i,
            .id = category::kGradient.raw(),
            .kind = RawKind::kLabel,
            .device = 1});
    }
    push({.id = 1, .kind = RawKind::kPhaseEnd});
  }
  void optimizer() {
    push({.id = 2, .kind = RawKind::kPhaseBegin});
    for (std::size_t i = 0; i < gradients_.size(); ++i) free(0, alloc(0, 1024));
    push({.kind = RawKind::kLabelWalk});
    push({.id = 2, .kind = RawKind::kPhaseEnd});
    push({.kind = RawKind::kStepEnd});
    for (const std::uint64_t gradient : gradients_) free(0, gradient);
  }

  std::uint32_t layers_;
  bool watched_ = true;
  std::uint64_t ticks_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t next_address_ = 0;
  std::vector<RawEvent> events_;
  std::vector<std::uint64_t> saved_;
  std::vector<std::uint64_t> gradients_;
  std::vector<std::uint64_t> free_;
};

void BM_WriteRepeatedSteps(benchmark::State& state) {
  TraceWriter writer(std::make_unique<NullSink>(), {}, {});
  Assembler assembler(writer, 0);
  StepTape tape(assembler, [](const ExpectedAllocs*) {});
  Steps steps(24);
  for (int i = 0; i < 3; ++i) {
    for (const RawEvent& raw : steps.next(true)) tape.on(raw);
  }
  if (!tape.repeating()) return state.SkipWithError("the steps are not equal");
  std::int64_t events = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const std::vector<RawEvent>& step = steps.next(false);
    state.ResumeTiming();
    for (const RawEvent& raw : step) tape.on(raw);
    events += static_cast<std::int64_t>(step.size());
  }
  if (!tape.repeating()) state.SkipWithError("the steps did not go on being equal");
  state.SetItemsProcessed(events);
}
BENCHMARK(BM_WriteRepeatedSteps);

}  // namespace
}  // namespace peakline::capture
