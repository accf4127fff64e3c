#include "capture/alloc_gate.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <span>

#include "capture/fork_guard.h"
#include "capture/op_observer.h"
#include "capture/step_tape.h"

namespace peakline::capture {
namespace {

constexpr std::size_t kExpectedAhead = 8;  // allocations: a cache line of them

// What every allocation looks at, in one cache line.
struct alignas(64) ThreadAllocs {
  std::uint64_t recorder = 0;
  std::uint64_t step = 0;
  std::size_t count = 0;  // in this step
  const ExpectedAllocs* expecting = nullptr;
  std::span<const std::uint64_t> expected = {};              // of this thread
  std::span<const ExpectedAllocs::Stack> stacks_ahead = {};  // likewise
};
constinit thread_local ThreadAllocs t_allocs __attribute__((tls_model("initial-exec")));

// Apart from what changes more often.
alignas(64) std::atomic<const ExpectedAllocs*> g_expected{nullptr};
std::atomic<std::uint64_t> g_step{0};

// What is expected and whether ops are watched change together.
std::mutex& expect_mutex() {
  static auto* const kMutex = new ForkSafe<std::mutex>(ForkOrder::kGate);
  return *kMutex;
}

// Says whether the allocation is as in the steps before, so that the tape knows where it comes from.
bool is_as_before(ThreadAllocs& allocs, const ExpectedAllocs* expected, Recorder& recorder,
                  const RawEvent& event) {
  if (expected == nullptr) return false;
  if (allocs.expecting != expected) {
    const ExpectedAllocs::Thread& mine = expected->of(recorder.this_thread());
    allocs.expecting = expected;
    allocs.expected = mine.allocs;
    allocs.stacks_ahead = mine.stacks;
  }
  const std::size_t index = allocs.count - 1;
  if (index >= allocs.expected.size() ||
      allocs.expected[index] != ExpectedAllocs::pack(event.size, event.device)) {
    return false;
  }
  __builtin_prefetch(
      &allocs.expected[std::min(index + kExpectedAhead, allocs.expected.size() - 1)]);
  // It may have been expected in the midst of the step only.
  auto& ahead = allocs.stacks_ahead;
  while (!ahead.empty() && ahead.front().alloc < index) ahead = ahead.subspan(1);
  return ahead.empty() || ahead.front().alloc != index ||
         ahead.front().stack == take_stack(recorder).stack;
}

// The first allocation that is not as before: from the next op on, ops are watched.
bool check_expected(ThreadAllocs& allocs, Recorder& recorder, const RawEvent& event) {
  const std::uint64_t step = g_step.load(std::memory_order_relaxed);
  if (allocs.step != step) {
    allocs.step = step;
    allocs.count = 0;
    allocs.expecting = nullptr;
  }
  ++allocs.count;
  const ExpectedAllocs* expected = g_expected.load(std::memory_order_acquire);
  const bool as_before = is_as_before(allocs, expected, recorder, event);
  if (expected != nullptr && !as_before) AllocGate::expect(nullptr);
  return as_before;
}

}  // namespace

void AllocGate::expect(const ExpectedAllocs* allocs) {
  const std::lock_guard guard(expect_mutex());
  g_expected.store(allocs, std::memory_order_release);
  if (!OpObserver::pause(allocs != nullptr)) g_expected.store(nullptr, std::memory_order_release);
}

bool AllocGate::repeating() noexcept {
  return g_expected.load(std::memory_order_acquire) != nullptr;
}

void AllocGate::step_end() noexcept { g_step.fetch_add(1, std::memory_order_relaxed); }

void push_inside_ops(Recorder& recorder, const RawEvent& event) noexcept {
  ThreadAllocs& allocs = t_allocs;
  if (allocs.recorder != recorder.serial()) {
    if (!recorder.live()) return;  // it must not take this thread from a later one
    allocs = {.recorder = recorder.serial()};
  }
  bool as_before = false;
  undisturbed(recorder, [&] { as_before = check_expected(allocs, recorder, event); });
  push_after_op_begins(recorder, event,
                       as_before ? TakenStack{} : take_stack_of(recorder, event.size));
}

}  // namespace peakline::capture
