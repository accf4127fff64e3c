#include "capture/words.h"

namespace peakline::capture {
namespace {

template <class Id, class Tell>
void each_new(std::size_t& told, std::size_t count, Tell tell) {
  for (; told < count; ++told) tell(Id(static_cast<typename Id::rep>(told)));
}

}  // namespace

Words::Counts Words::count(const Dictionary& words) noexcept {
  return {words.name_count(),   words.op_count(),   words.module_count(), words.device_count(),
          words.thread_count(), words.line_count(), words.stack_count()};
}

void Words::clear() {
  const std::lock_guard guard(mutex_);
  words_ = Dictionary();
  told_ = count(words_);
}

LineId Words::line(std::string_view file, std::string_view function, std::uint32_t number,
                   bool library) {
  const std::lock_guard guard(mutex_);
  const std::size_t before = words_.line_count();
  const LineId id = words_.intern_line(
      {words_.intern_name(file), words_.intern_name(function), number, library, {}});
  // The writer's dictionary has the line's text: this one must be full before that one is.
  if (words_.line_count() > before) words_.set_aside(SourceLines::kLongest);
  return id;
}

StackId Words::stack(std::span<const LineId> lines) {
  const std::lock_guard guard(mutex_);
  StackId stack;
  for (const LineId line : lines) stack = words_.intern_stack(stack, line);
  return stack;
}

// Files are read while nobody waits for the words.
void Words::tell(TraceWriter& writer, SourceLines* sources) {
  std::size_t stacks = 0;
  std::vector<Place> places;
  {
    const std::lock_guard guard(mutex_);
    stacks = words_.stack_count();
    places = new_places();
  }
  std::vector<std::string> texts(places.size());
  for (std::size_t i = 0; sources != nullptr && i < places.size(); ++i) {
    texts[i] = sources->line(places[i].file, places[i].number);
  }
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
  tell_code(writer, texts, stacks);
}

std::vector<Words::Place> Words::new_places() {
  std::vector<Place> places;
  for (std::size_t i = told_.lines; i < words_.line_count(); ++i) {
    const CodeLine& line = words_.line(LineId(static_cast<std::uint32_t>(i)));
    places.push_back({std::string(words_.name(line.file)), line.line});
  }
  return places;
}

// As many lines as there are texts, and the stacks that were there with them.
void Words::tell_code(TraceWriter& writer, const std::vector<std::string>& texts,
                      std::size_t stacks) {
  const std::size_t first = told_.lines;
  each_new<LineId>(told_.lines, first + texts.size(), [&](LineId id) {
    CodeLine line = words_.line(id);
    line.text = texts[id.raw() - first];
    writer.line(line);
  });
  each_new<StackId>(told_.stacks, stacks, [&](StackId id) {
    writer.stack(words_.stack(id).caller, words_.stack(id).line);
  });
}

}  // namespace peakline::capture
