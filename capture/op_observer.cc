#include "capture/op_observer.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

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
  std::uint64_t first_node = 0;  // that the outermost op may make
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
std::atomic<bool> g_writes_ops{false};   // the recording wants them, and is not paused
std::atomic<bool> g_tells_ops{false};    // listeners want them
std::atomic<bool> g_notes_nodes{false};  // the recording wants to know who makes nodes

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

// The outermost op is over: the nodes that it made belong to the line that called it.
void note_nodes(const ThreadOps& ops) {
  Recorder* recorder = current_recorder();
  if (recorder == nullptr || at::sequence_number::peek() == ops.first_node) return;
  const TakenStack taken = take_stack(*recorder);
  if (taken.stack == StackId{}) return;
  recorder->push({.address = ops.first_node,
                  .extra = at::RecordFunction::currentThreadId(),
                  .id = taken.stack.raw(),
                  .kind = RawKind::kNodesMade});
}

// torch's callbacks: what goes wrong in them ends the recording, if there is one, and no op.
template <class Observe>
void observed(Observe&& observe) noexcept {
  try {
    observe();
  } catch (const std::exception& error) {
    if (Recorder* recorder = current_recorder()) recorder->fail(error.what());
  }
}

void begin_op(const at::RecordFunction& function) {
  ThreadOps& ops = thread_ops();
  if (ops.depth == 0) ops.first_node = at::sequence_number::peek();
  if (ops.depth < kMaxDepth) ops.names[ops.depth] = function.name();
  ++ops.depth;
  if (ops.told == 0 && g_tells_ops.load(std::memory_order_relaxed)) begin_told(ops, function);
}

std::unique_ptr<at::ObserverContext> op_begin(const at::RecordFunction& function) {
  observed([&] { begin_op(function); });
  return nullptr;
}

void end_written(ThreadOps& ops) {
  ops.written = ops.depth;
  Recorder* recorder = current_recorder();
  if (recorder == nullptr || ops.recorder != recorder->serial()) return;
  if (ops.unsettled) settle(ops, *recorder);
  if (ops.shown[ops.depth]) recorder->op_end();
}

void end_op(const at::RecordFunction& function) {
  ThreadOps& ops = thread_ops();
  // Ranges nest, so at depth 0 what ends here was not counted when it began.
  if (ops.depth == 0) return;
  --ops.depth;
  if (ops.written > ops.depth) end_written(ops);
  if (ops.depth == 0 && g_notes_nodes.load(std::memory_order_relaxed)) note_nodes(ops);
  if (ops.told > ops.depth) {
    ops.told = 0;
    tell_op_end(function, *ops.told_op);
  }
}

void op_end(const at::RecordFunction& function, at::ObserverContext*) {
  observed([&] { end_op(function); });
}

void begin_node(const at::RecordFunction& function) {
  const std::uint32_t depth = ++thread_ops().nodes;
  if (Recorder* recorder = current_recorder()) {
    recorder->push({.address = static_cast<std::uint64_t>(function.seqNr()),
                    .extra = function.forwardThreadId(),
                    .id = depth,
                    .kind = RawKind::kNodeBegin});
  }
}

std::unique_ptr<at::ObserverContext> node_begin(const at::RecordFunction& function) {
  observed([&] { begin_node(function); });
  return nullptr;
}

void node_end(const at::RecordFunction&, at::ObserverContext*) {
  observed([] {
    ThreadOps& ops = thread_ops();
    if (ops.nodes > 0) --ops.nodes;
  });
}

// Named by torch itself, around every step or batch of every program.
bool is_torchs_own(std::string_view name) {
  return name.starts_with("Optimizer.") || name.starts_with("enumerate(DataLoader)");
}

// A range of record_function that the recording has as a region, in `recording`.
struct NotedRegion final : at::ObserverContext {
  explicit NotedRegion(std::uint64_t serial) : recording(serial) {}
  std::uint64_t recording;
};

std::unique_ptr<at::ObserverContext> region_begin(const at::RecordFunction& function) {
  Recorder* recorder = current_recorder();
  if (recorder == nullptr || is_torchs_own(function.name())) return nullptr;
  std::unique_ptr<at::ObserverContext> noted;
  observed([&] {
    noted = std::make_unique<NotedRegion>(recorder->serial());
    recorder->push(
        {.id = recorder->words().name(function.name()).raw(), .kind = RawKind::kRegionBegin});
  });
  return noted;
}

void region_end(const at::RecordFunction&, at::ObserverContext* context) {
  const auto* noted = static_cast<const NotedRegion*>(context);
  Recorder* recorder = current_recorder();
  if (noted == nullptr || recorder == nullptr || noted->recording != recorder->serial()) return;
  recorder->push({.kind = RawKind::kRegionEnd});
}

// Who wants what, and what torch has been asked for.
class Wishes {
 public:
  static Wishes& instance() {
    static Wishes* const kWishes = new Wishes;
    return *kWishes;
  }

  void record(bool on, bool ops, bool origins) {
    const std::lock_guard<std::mutex> guard(mutex_);
    recording_ = on;
    recording_ops_ = on && ops;
    recording_origins_ = on && origins;
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
    const bool origins = recording_origins_ && !paused_;
    g_notes_nodes.store(origins, std::memory_order_relaxed);
    const bool ops = writes || origins || listeners_ > 0;
    const bool outputs = with_outputs_ > 0;
    set(ops_, ops && !outputs, op_callback());
    set(ops_with_outputs_, ops && outputs, op_callback().needsOutputs(true));
    set(nodes_, recording_ && !paused_,
        at::RecordFunctionCallback(&node_begin, &node_end)
            .scopes({at::RecordScope::BACKWARD_FUNCTION}));
    // Whatever is named while steps repeat is as cheap as it is rare.
    set(regions_, recording_,
        at::RecordFunctionCallback(&region_begin, &region_end)
            .scopes({at::RecordScope::USER_SCOPE}));
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
  bool recording_origins_ = false;
  bool paused_ = false;
  int listeners_ = 0;
  int with_outputs_ = 0;
  at::CallbackHandle ops_ = at::INVALID_CALLBACK_HANDLE;
  at::CallbackHandle ops_with_outputs_ = at::INVALID_CALLBACK_HANDLE;
  at::CallbackHandle nodes_ = at::INVALID_CALLBACK_HANDLE;
  at::CallbackHandle regions_ = at::INVALID_CALLBACK_HANDLE;
};

}  // namespace

OpObserver::OpObserver(bool ops, bool origins) { Wishes::instance().record(true, ops, origins); }
OpObserver::~OpObserver() { Wishes::instance().record(false, false, false); }
bool OpObserver::pause(bool on) { return Wishes::instance().pause(on); }

OpEnds::OpEnds(bool outputs) : outputs_(outputs) { Wishes::instance().listen(+1, outputs_); }
OpEnds::~OpEnds() { Wishes::instance().listen(-1, outputs_); }

namespace {

// `depth`: of the ops to be written before it.
void push_with_begins(ThreadOps& ops, Recorder& recorder, std::uint32_t depth,
                      const RawEvent& event, const TakenStack& stack) {
  // Few are ever open at once; a longer row goes in parts.
  std::array<RawEvent, 7> events;
  std::size_t count = 0;
  for (; ops.written < depth; ++ops.written) {
    const OpId id = op_id(ops, recorder, ops.names[ops.written]);
    ops.shown[ops.written] = id != OpId{};
    if (id == OpId{}) continue;
    if (count + 2 == events.size()) {
      recorder.push_all({events.data(), count});
      count = 0;
    }
    events[count++] = {.id = id.raw(), .kind = RawKind::kOpBegin};
  }
  if (stack.stack != StackId{}) events[count++] = stack_event(stack);
  events[count++] = event;
  recorder.push_all({events.data(), count});
}

}  // namespace

void push_after_op_begins(Recorder& recorder, const RawEvent& event,
                          const TakenStack& stack) noexcept {
  undisturbed(recorder, [&] {
    ThreadOps& ops = thread_ops();
    if (ops.recorder != recorder.serial()) begin_recording(ops, recorder);
    const bool writes_ops = g_writes_ops.load(std::memory_order_relaxed);
    const std::uint32_t depth = writes_ops ? std::min(ops.depth, kMaxDepth) : ops.written;
    if (ops.written >= depth && stack.stack == StackId{}) return recorder.push(event);
    push_with_begins(ops, recorder, depth, event, stack);
  });
}

void set_settle(Settle settle) noexcept { g_settle.store(settle, std::memory_order_release); }

// Of a thread that has met no op nothing is known, and it has nothing to settle.
void settle_at_op_end() noexcept {
  if (t_ops != nullptr) t_ops->unsettled = true;
}

std::uint32_t node_depth() noexcept { return t_ops != nullptr ? t_ops->nodes : 0; }

bool inside_told_op() noexcept { return t_ops != nullptr && t_ops->told != 0; }

}  // namespace peakline::capture
