#include "capture/op_observer.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <memory>
#include <mutex>
#include <string>

namespace peakline::capture {
namespace {

constexpr std::uint32_t kMaxDepth = 128;
constexpr std::size_t kExpectedAhead = 8;  // allocations: a cache line of them

// The ops that run on one thread, outermost first, and the ids of those it has met.
struct ThreadOps {
  // What every allocation looks at, in one cache line.
  alignas(64) std::uint64_t recorder = 0;
  std::uint64_t step = 0;
  std::size_t allocs = 0;  // in this step
  const ExpectedAllocs* expecting = nullptr;
  std::span<const std::uint64_t> expected;  // of this thread
  std::uint32_t depth = 0;
  std::uint32_t written = 0;  // so many of them have begun in the recording
  std::uint32_t nodes = 0;
  bool unsettled = false;

  std::array<const char*, kMaxDepth> names{};
  std::bitset<kMaxDepth> shown;  // of those written: the others say nothing about the program

  struct Known {
    const char* where = nullptr;
    std::string name;
    OpId id;  // none: not to be shown
  };
  std::array<Known, 512> known;
};

std::atomic<Settle> g_settle{nullptr};

// Of the observer that there is.
std::mutex g_ops_mutex;
at::CallbackHandle g_ops = at::INVALID_CALLBACK_HANDLE;
at::CallbackHandle g_nodes = at::INVALID_CALLBACK_HANDLE;
// Apart from what changes more often.
alignas(64) std::atomic<const ExpectedAllocs*> g_expected{nullptr};
std::atomic<std::uint64_t> g_step{0};

// A plain pointer keeps the way to it to one instruction; `owner` ends with the thread.
thread_local ThreadOps* t_ops __attribute__((tls_model("initial-exec"))) = nullptr;

ThreadOps& make_ops() {
  thread_local struct Owner {
    std::unique_ptr<ThreadOps> ops = std::make_unique<ThreadOps>();
    ~Owner() { t_ops = nullptr; }
  } owner;
  t_ops = owner.ops.get();
  return *t_ops;
}

ThreadOps& thread_ops() { return t_ops != nullptr ? *t_ops : make_ops(); }

void begin_recording(ThreadOps& ops, const Recorder& recorder) {
  ops.recorder = recorder.serial();
  ops.written = 0;
  ops.allocs = 0;
  ops.expecting = nullptr;
  for (ThreadOps::Known& known : ops.known) known.where = nullptr;
}

// How an op gets from C++ to Python and back, not an op.
bool is_machinery(std::string_view name) {
  return name == "PythonDispatchMode" || name == "PythonSubclass";
}

// An op's name lies in its schema, always at the same place; other names may come and go, so the
// text is compared as well.
OpId op_id(ThreadOps& ops, Recorder& recorder, const char* name) {
  const auto hash = (reinterpret_cast<std::uintptr_t>(name) * 0x9E3779B97F4A7C15U) >> 32;
  ThreadOps::Known& known = ops.known[hash % ops.known.size()];
  if (known.where != name || known.name != name) {
    known.where = name;
    known.name = name;
    known.id = is_machinery(known.name) ? OpId{} : recorder.words().op(known.name);
  }
  return known.id;
}

// The first allocation that is not as in the steps before: from the next op on, ops are watched.
void check_expected(ThreadOps& ops, Recorder& recorder, const RawEvent& event) {
  const std::uint64_t step = g_step.load(std::memory_order_relaxed);
  if (ops.step != step) {
    ops.step = step;
    ops.allocs = 0;
  }
  const std::size_t index = ops.allocs++;
  const ExpectedAllocs* expected = g_expected.load(std::memory_order_acquire);
  if (expected == nullptr) return;
  if (ops.expecting != expected) {
    ops.expecting = expected;
    ops.expected = expected->of(recorder.this_thread());
  }
  if (index >= ops.expected.size() ||
      ops.expected[index] != ExpectedAllocs::pack(event.size, event.device)) {
    return OpObserver::expect(nullptr);
  }
  __builtin_prefetch(&ops.expected[std::min(index + kExpectedAhead, ops.expected.size() - 1)]);
}

void settle(ThreadOps& ops, Recorder& recorder) {
  ops.unsettled = false;
  const Settle function = g_settle.load(std::memory_order_acquire);
  if (function != nullptr) function(recorder);
}

std::unique_ptr<at::ObserverContext> op_begin(const at::RecordFunction& function) {
  ThreadOps& ops = thread_ops();
  if (ops.depth < kMaxDepth) ops.names[ops.depth] = function.name();
  ++ops.depth;
  return nullptr;
}

void op_end(const at::RecordFunction&, at::ObserverContext*) {
  ThreadOps& ops = thread_ops();
  if (ops.depth == 0) return;
  --ops.depth;
  if (ops.written <= ops.depth) return;
  ops.written = ops.depth;
  Recorder* recorder = current_recorder();
  if (recorder == nullptr || ops.recorder != recorder->serial()) return;
  if (ops.unsettled) settle(ops, *recorder);
  if (ops.shown[ops.depth]) recorder->op_end();
}

std::unique_ptr<at::ObserverContext> node_begin(const at::RecordFunction& function) {
  const std::uint32_t depth = ++thread_ops().nodes;
  if (Recorder* recorder = current_recorder()) {
    recorder->push({.address = static_cast<std::uint64_t>(function.seqNr()),
                    .extra = function.forwardThreadId(),
                    .id = depth,
                    .kind = RawKind::kNodeBegin});
  }
  return nullptr;
}

void node_end(const at::RecordFunction&, at::ObserverContext*) {
  ThreadOps& ops = thread_ops();
  if (ops.nodes > 0) --ops.nodes;
}

}  // namespace

OpObserver::OpObserver(bool ops) {
  if (ops) {
    ops_ = at::addGlobalCallback(
        at::RecordFunctionCallback(&op_begin, &op_end).scopes({at::RecordScope::FUNCTION}));
  }
  nodes_ = at::addGlobalCallback(at::RecordFunctionCallback(&node_begin, &node_end)
                                     .scopes({at::RecordScope::BACKWARD_FUNCTION}));
  const std::lock_guard guard(g_ops_mutex);
  g_ops = ops_;
  g_nodes = nodes_;
}

OpObserver::~OpObserver() {
  const std::lock_guard guard(g_ops_mutex);
  g_ops = at::INVALID_CALLBACK_HANDLE;
  g_nodes = at::INVALID_CALLBACK_HANDLE;
  g_expected.store(nullptr, std::memory_order_release);
  if (ops_ != at::INVALID_CALLBACK_HANDLE) at::removeCallback(ops_);
  at::removeCallback(nodes_);
}

void OpObserver::expect(const ExpectedAllocs* allocs) {
  const std::lock_guard guard(g_ops_mutex);
  if (g_nodes == at::INVALID_CALLBACK_HANDLE) return;
  g_expected.store(allocs, std::memory_order_release);
  for (const at::CallbackHandle handle : {g_ops, g_nodes}) {
    if (handle == at::INVALID_CALLBACK_HANDLE) continue;
    if (allocs == nullptr) {
      at::reenableCallback(handle);
    } else {
      at::disableCallback(handle);
    }
  }
}

bool OpObserver::repeating() noexcept {
  return g_expected.load(std::memory_order_acquire) != nullptr;
}

void OpObserver::step_end() noexcept { g_step.fetch_add(1, std::memory_order_relaxed); }

void push_inside_ops(Recorder& recorder, const RawEvent& event) noexcept {
  ThreadOps& ops = thread_ops();
  if (ops.recorder != recorder.serial()) begin_recording(ops, recorder);
  check_expected(ops, recorder, event);
  const std::uint32_t depth = std::min(ops.depth, kMaxDepth);
  if (ops.written >= depth) return recorder.push(event);

  // Few are ever open at once; a longer row goes in parts.
  std::array<RawEvent, 6> events;
  std::size_t count = 0;
  for (; ops.written < depth; ++ops.written) {
    const OpId id = op_id(ops, recorder, ops.names[ops.written]);
    ops.shown[ops.written] = id != OpId{};
    if (id == OpId{}) continue;
    if (count + 1 == events.size()) {
      recorder.push_all({events.data(), count});
      count = 0;
    }
    events[count++] = {.id = id.raw(), .kind = RawKind::kOpBegin};
  }
  events[count++] = event;
  recorder.push_all({events.data(), count});
}

void set_settle(Settle settle) noexcept { g_settle.store(settle, std::memory_order_release); }

void settle_at_op_end() noexcept { thread_ops().unsettled = true; }

std::uint32_t node_depth() noexcept { return thread_ops().nodes; }

}  // namespace peakline::capture
