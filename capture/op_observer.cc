#include "capture/op_observer.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <memory>
#include <mutex>
#include <string>

#include "capture/fork_guard.h"
#include "capture/listeners.h"
#include "capture/op_facts.h"

namespace peakline::capture {
namespace {

constexpr std::uint32_t kMaxDepth = 128;

// The ops that run on one thread, outermost first, and the ids of those it has met.
struct ThreadOps {
  std::uint64_t recorder = 0;
  std::uint32_t depth = 0;
  std::uint32_t written = 0;  // so many of them have begun in the recording
  std::uint32_t nodes = 0;
  std::uint32_t told = 0;  // depth of the op that listeners will be told of; 0: none
  const OpFacts* told_op = nullptr;
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

std::atomic<Settle> g_settle{nullptr};
std::atomic<bool> g_writes_ops{false};  // the recording wants them, and is not paused
std::atomic<bool> g_tells_ops{false};   // listeners want them

void settle(ThreadOps& ops, Recorder& recorder) {
  ops.unsettled = false;
  const Settle function = g_settle.load(std::memory_order_acquire);
  if (function != nullptr) function(recorder);
}

// Told is the outermost op that a dispatch mode would see.
void begin_told(ThreadOps& ops, const at::RecordFunction& function) {
  const OpFacts* facts = facts_of(function);
  if (facts == nullptr || facts->composite) return;
  ops.told = ops.depth;
  ops.told_op = facts;
}

std::unique_ptr<at::ObserverContext> op_begin(const at::RecordFunction& function) {
  ThreadOps& ops = thread_ops();
  if (ops.depth < kMaxDepth) ops.names[ops.depth] = function.name();
  ++ops.depth;
  if (ops.told == 0 && g_tells_ops.load(std::memory_order_relaxed)) begin_told(ops, function);
  return nullptr;
}

void end_written(ThreadOps& ops) {
  ops.written = ops.depth;
  Recorder* recorder = current_recorder();
  if (recorder == nullptr || ops.recorder != recorder->serial()) return;
  if (ops.unsettled) settle(ops, *recorder);
  if (ops.shown[ops.depth]) recorder->op_end();
}

void op_end(const at::RecordFunction& function, at::ObserverContext*) {
  ThreadOps& ops = thread_ops();
  // Ranges nest, so at depth 0 what ends here was not counted when it began.
  if (ops.depth == 0) return;
  --ops.depth;
  if (ops.written > ops.depth) end_written(ops);
  if (ops.told > ops.depth) {
    ops.told = 0;
    tell_op_end(function, *ops.told_op);
  }
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

// Who wants what, and what torch has been asked for.
class Wishes {
 public:
  static Wishes& instance() {
    static Wishes* const kWishes = new Wishes;
    return *kWishes;
  }

  void record(bool on, bool ops) {
    const std::lock_guard<std::mutex> guard(mutex_);
    recording_ = on;
    recording_ops_ = on && ops;
    paused_ = false;
    ask();
  }
  bool pause(bool on) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!recording_) return false;
    paused_ = on;
    ask();
    return true;
  }
  void listen(int change, bool outputs) {
    const std::lock_guard<std::mutex> guard(mutex_);
    listeners_ += change;
    if (outputs) with_outputs_ += change;
    ask();
  }

 private:
  // A range that has begun ends at the callback that it began with, so a thread's depth stays right
  // whenever this happens.
  void ask() {
    const bool writes = recording_ops_ && !paused_;
    g_writes_ops.store(writes, std::memory_order_relaxed);
    g_tells_ops.store(listeners_ > 0, std::memory_order_relaxed);
    const bool ops = writes || listeners_ > 0;
    const bool outputs = with_outputs_ > 0;
    set(ops_, ops && !outputs, op_callback());
    set(ops_with_outputs_, ops && outputs, op_callback().needsOutputs(true));
    set(nodes_, recording_ && !paused_,
        at::RecordFunctionCallback(&node_begin, &node_end)
            .scopes({at::RecordScope::BACKWARD_FUNCTION}));
  }
  static at::RecordFunctionCallback op_callback() {
    return at::RecordFunctionCallback(&op_begin, &op_end).scopes({at::RecordScope::FUNCTION});
  }
  static void set(at::CallbackHandle& handle, bool on, const at::RecordFunctionCallback& callback) {
    const bool is_on = handle != at::INVALID_CALLBACK_HANDLE;
    if (on && !is_on) handle = at::addGlobalCallback(callback);
    if (on || !is_on) return;
    at::removeCallback(handle);
    handle = at::INVALID_CALLBACK_HANDLE;
  }

  ForkSafe<std::mutex> mutex_{ForkOrder::kOps};
  bool recording_ = false;
  bool recording_ops_ = false;
  bool paused_ = false;
  int listeners_ = 0;
  int with_outputs_ = 0;
  at::CallbackHandle ops_ = at::INVALID_CALLBACK_HANDLE;
  at::CallbackHandle ops_with_outputs_ = at::INVALID_CALLBACK_HANDLE;
  at::CallbackHandle nodes_ = at::INVALID_CALLBACK_HANDLE;
};

}  // namespace

OpObserver::OpObserver(bool ops) { Wishes::instance().record(true, ops); }
OpObserver::~OpObserver() { Wishes::instance().record(false, false); }
bool OpObserver::pause(bool on) { return Wishes::instance().pause(on); }

OpEnds::OpEnds(bool outputs) : outputs_(outputs) { Wishes::instance().listen(+1, outputs_); }
OpEnds::~OpEnds() { Wishes::instance().listen(-1, outputs_); }

void push_after_op_begins(Recorder& recorder, const RawEvent& event) noexcept {
  ThreadOps& ops = thread_ops();
  if (ops.recorder != recorder.serial()) begin_recording(ops, recorder);
  const std::uint32_t depth = std::min(ops.depth, kMaxDepth);
  if (ops.written >= depth || !g_writes_ops.load(std::memory_order_relaxed)) {
    return recorder.push(event);
  }

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

bool inside_told_op() noexcept { return thread_ops().told != 0; }

}  // namespace peakline::capture
