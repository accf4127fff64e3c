#include "capture/op_facts.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "capture/fork_guard.h"

namespace peakline::capture {
namespace {

// Shared by threads and kept for ever: there are a few thousand operators.
struct AllFacts {
  ForkSafe<std::mutex> mutex{ForkOrder::kLast};
  std::unordered_map<c10::OperatorName, std::unique_ptr<OpFacts>> by_name;
};

const OpFacts* intern(const c10::OperatorName& name) {
  static AllFacts& all = *new AllFacts;
  const std::lock_guard<std::mutex> guard(all.mutex);
  std::unique_ptr<OpFacts>& facts = all.by_name[name];
  if (!facts) {
    const auto handle = c10::Dispatcher::singleton().findOp(name);
    const bool composite =
        handle && handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    facts = std::make_unique<OpFacts>(OpFacts{name.name, name.overload_name, composite});
  }
  return facts.get();
}

}  // namespace

const OpFacts* facts_of(const at::RecordFunction& call) {
  // By the address of the schema's name; names of other ranges may come and go at one address.
  thread_local std::unordered_map<const char*, const OpFacts*> met;
  const char* name = call.name();
  const auto found = met.find(name);
  if (found != met.end() && found->second->name == name) return found->second;
  const auto full_name = call.operator_name();
  if (!full_name) return nullptr;
  return met[name] = intern(*full_name);
}

}  // namespace peakline::capture
