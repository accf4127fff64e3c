#include "capture/dropin/op_watch.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace peakline::dropin {
namespace {

using Listeners = std::vector<std::shared_ptr<OpListener>>;

// Replaced whole, never changed, so that a callback on another thread can go on with the old one.
std::atomic<std::shared_ptr<const Listeners>> g_listeners;
std::mutex g_listeners_mutex;

void change_listeners(const std::shared_ptr<OpListener>& listener, bool add) {
  std::lock_guard<std::mutex> lock(g_listeners_mutex);
  auto old = g_listeners.load();
  auto changed = old ? std::make_shared<Listeners>(*old) : std::make_shared<Listeners>();
  if (add) {
    changed->push_back(listener);
  } else {
    std::erase(*changed, listener);
  }
  g_listeners.store(std::move(changed));
}

struct ThreadState {
  int depth = 0;                // nesting inside the outermost non-composite operator
  const OpFacts* op = nullptr;  // that operator
  std::unordered_map<const char*, const OpFacts*> met;  // by address of the schema's name
};
thread_local ThreadState t_state;

// Facts are shared by threads and kept for ever: there are a few thousand operators.
const OpFacts* intern(const c10::OperatorName& name) {
  static std::mutex mutex;
  static std::unordered_map<c10::OperatorName, std::unique_ptr<OpFacts>> all;
  std::lock_guard<std::mutex> lock(mutex);
  auto& facts = all[name];
  if (!facts) {
    auto handle = c10::Dispatcher::singleton().findOp(name);
    const bool composite =
        handle && handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    facts = std::make_unique<OpFacts>(OpFacts{name.name, name.overload_name, composite});
  }
  return facts.get();
}

// Null for a range that is no operator.
const OpFacts* facts_of(const at::RecordFunction& call) {
  const char* name = call.name();
  auto& met = t_state.met;
  auto found = met.find(name);
  if (found != met.end() && found->second->name == name) return found->second;
  auto full_name = call.operator_name();
  if (!full_name) return nullptr;
  const OpFacts* facts = intern(*full_name);
  met[name] = facts;
  return facts;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& call) {
  ThreadState& state = t_state;
  if (state.depth > 0) {
    ++state.depth;
    return nullptr;
  }
  const OpFacts* facts = facts_of(call);
  if (facts != nullptr && !facts->composite) {
    state.depth = 1;
    state.op = facts;
  }
  return nullptr;
}

void on_end(const at::RecordFunction& call, at::ObserverContext*) {
  ThreadState& state = t_state;
  // Ranges nest, so at depth 0 what ends here was not counted when it began.
  if (state.depth == 0 || --state.depth > 0) return;
  auto listeners = g_listeners.load();
  if (!listeners) return;
  for (const auto& listener : *listeners) listener->on_op_end(call, *state.op);
}

thread_local int t_watches = 0;
thread_local at::CallbackHandle t_handle = 0;
thread_local bool t_outputs = false;

void set_callback(bool outputs) {
  if (t_handle != 0) at::removeCallback(t_handle);
  t_outputs = outputs;
  t_handle = at::addThreadLocalCallback(at::RecordFunctionCallback(&on_start, &on_end)
                                            .needsOutputs(outputs)
                                            .scopes({at::RecordScope::FUNCTION}));
}

}  // namespace

OpWatch::OpWatch(std::shared_ptr<OpListener> listener, bool outputs)
    : listener_(std::move(listener)) {
  change_listeners(listener_, true);
  // One callback serves all watches of a thread: two would tell every listener twice.
  if (t_watches++ == 0 || (outputs && !t_outputs)) set_callback(outputs);
}

OpWatch::~OpWatch() {
  change_listeners(listener_, false);
  if (--t_watches == 0) {
    at::removeCallback(t_handle);
    t_handle = 0;
  }
}

bool inside_op() noexcept { return t_state.depth > 0; }

}  // namespace peakline::dropin
