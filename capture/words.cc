#include "capture/words.h"

namespace peakline::capture {

OpId Words::op(std::string_view name) {
  const std::lock_guard guard(mutex_);
  const std::size_t before = dictionary_.op_count();
  const OpId id = dictionary_.intern_op(name);
  if (dictionary_.op_count() != before) {
    untold_.push_back([word = std::string(name)](TraceWriter& writer) { writer.op(word); });
  }
  return id;
}

NameId Words::name(std::string_view text) {
  const std::lock_guard guard(mutex_);
  const std::size_t before = dictionary_.name_count();
  const NameId id = dictionary_.intern_name(text);
  if (dictionary_.name_count() != before) {
    untold_.push_back([word = std::string(text)](TraceWriter& writer) { writer.name(word); });
  }
  return id;
}

ModuleId Words::module(std::string_view path, std::string_view type, ModuleId parent) {
  const std::lock_guard guard(mutex_);
  const std::size_t before = dictionary_.module_count();
  const ModuleId id = dictionary_.intern_module(path, type, parent);
  if (dictionary_.module_count() != before) {
    untold_.push_back([path = std::string(path), type = std::string(type),
                       parent](TraceWriter& writer) { writer.module(path, type, parent); });
  }
  return id;
}

DeviceId Words::device(const DeviceInfo& device) {
  const std::lock_guard guard(mutex_);
  const std::size_t before = dictionary_.device_count();
  const DeviceId id = dictionary_.intern_device(device);
  if (dictionary_.device_count() != before) {
    untold_.push_back([device](TraceWriter& writer) { writer.device(device); });
  }
  return id;
}

ThreadId Words::thread(std::string_view name) {
  const std::lock_guard guard(mutex_);
  const std::size_t before = dictionary_.thread_count();
  const ThreadId id = dictionary_.intern_thread(name);
  if (dictionary_.thread_count() != before) {
    untold_.push_back([word = std::string(name)](TraceWriter& writer) { writer.thread(word); });
  }
  return id;
}

void Words::clear() {
  const std::lock_guard guard(mutex_);
  dictionary_ = Dictionary();
  untold_.clear();
}

void Words::tell(TraceWriter& writer) {
  std::vector<Definition> definitions;
  {
    const std::lock_guard guard(mutex_);
    definitions.swap(untold_);
  }
  for (const Definition& define : definitions) define(writer);
}

}  // namespace peakline::capture
