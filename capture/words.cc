#include "capture/words.h"

namespace peakline::capture {
namespace {

template <class Id, class Tell>
void each_new(std::size_t& told, std::size_t count, Tell tell) {
  for (; told < count; ++told) tell(Id(static_cast<typename Id::rep>(told)));
}

}  // namespace

Words::Counts Words::count(const Dictionary& words) noexcept {
  return {words.name_count(), words.op_count(), words.module_count(), words.device_count(),
          words.thread_count()};
}

void Words::clear() {
  const std::lock_guard guard(mutex_);
  words_ = Dictionary();
  told_ = count(words_);
}

void Words::tell(TraceWriter& writer) {
  const std::lock_guard guard(mutex_);
  const Counts now = count(words_);
  each_new<NameId>(told_.names, now.names, [&](NameId id) { writer.name(words_.name(id)); });
  each_new<OpId>(told_.ops, now.ops, [&](OpId id) { writer.op(words_.op(id)); });
  each_new<ModuleId>(told_.modules, now.modules, [&](ModuleId id) {
    const ModuleInfo& module = words_.module(id);
    writer.module(module.path, module.type, module.parent);
  });
  each_new<DeviceId>(told_.devices, now.devices,
                     [&](DeviceId id) { writer.device(words_.device(id)); });
  each_new<ThreadId>(told_.threads, now.threads,
                     [&](ThreadId id) { writer.thread(words_.thread(id)); });
}

}  // namespace peakline::capture
