// The vocabulary of tests: a run told as a chain of words, giving its events or its file.
//
//   TraceBuilder{}.enter("Net.fc1").op("aten::mm").alloc("a", 4_MiB).op_end().leave("Net.fc1")
//       .free("a").step();
//
// Blocks go by name. Time advances 1 us before each event. Without device() or thread() everything
// happens on "cuda:0", thread "main", stream 0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <peakline/category.h>
#include <peakline/diagnostics.h>
#include <peakline/dictionary.h>
#include <peakline/event.h>
#include <peakline/trace.h>

namespace peakline::testing {

using namespace peakline::literals;

class TraceBuilder {
 public:
  TraceBuilder() : thread_(dictionary_.intern_thread("main")) {}

  // Where the following events happen.
  TraceBuilder& device(std::string_view name, Bytes total = Bytes{}, std::string_view model = {}) {
    device_ = dictionary_.intern_device({std::string(name), std::string(model), total});
    return *this;
  }
  TraceBuilder& thread(std::string_view name) {
    thread_ = dictionary_.intern_thread(name);
    return *this;
  }
  TraceBuilder& stream(std::uint32_t stream) {
    stream_ = StreamId(stream);
    return *this;
  }
  // When: the next event comes `ns` after the last one, or all following ones `ns` apart.
  TraceBuilder& wait(std::int64_t ns) {
    time_ += ns - tick_;
    return *this;
  }
  TraceBuilder& tick(std::int64_t ns) {
    tick_ = ns;
    return *this;
  }
  TraceBuilder& info(std::string_view key, std::string_view value) {
    info_[std::string(key)] = value;
    return *this;
  }

  // Modules go by dotted path; parents are defined on the way ("Net.fc1" lies below "Net").
  TraceBuilder& module(std::string_view path, std::string_view type) {
    module_id(path, type);
    return *this;
  }
  TraceBuilder& enter(std::string_view path, ModulePass pass = ModulePass::kForward) {
    return add(ModuleEnter{module_id(path), pass});
  }
  TraceBuilder& leave(std::string_view path, ModulePass pass = ModulePass::kForward) {
    return add(ModuleLeave{module_id(path), pass});
  }
  TraceBuilder& backward(std::string_view path) { return enter(path, ModulePass::kBackward); }
  TraceBuilder& backward_end(std::string_view path) { return leave(path, ModulePass::kBackward); }
  TraceBuilder& recompute(std::string_view path) { return enter(path, ModulePass::kRecompute); }
  TraceBuilder& recompute_end(std::string_view path) { return leave(path, ModulePass::kRecompute); }

  // The next allocation comes from here: "train.py:12 step > model.py:40 forward", the outermost
  // first; a line of a library begins with "lib:".
  TraceBuilder& at(std::string_view stack, std::string_view forward = {}) {
    return add(CallStack{stack_id(stack), stack_id(forward)});
  }
  TraceBuilder& region(std::string_view name) {
    return add(RegionBegin{dictionary_.intern_name(name)});
  }
  TraceBuilder& region_end() { return add(RegionEnd{}); }

  TraceBuilder& op(std::string_view name) { return add(OpBegin{dictionary_.intern_op(name)}); }
  TraceBuilder& op_end() { return add(OpEnd{}); }

  // A name that is used again after its free is a new block.
  TraceBuilder& alloc(std::string_view block, Bytes bytes) { return alloc(block, bytes, bytes); }
  TraceBuilder& alloc(std::string_view block, Bytes bytes, Bytes requested) {
    const BlockId id = blocks_[std::string(block)] = BlockId(next_block_++);
    const Address address(next_address_);
    const auto size = static_cast<std::uint64_t>(std::max<std::int64_t>(bytes.raw(), 0));
    next_address_ += (size + 511) / 512 * 512;
    return add(Alloc{id, bytes, requested, address, stream_, device_id()});
  }
  TraceBuilder& free(std::string_view block) { return add(Free{block_id(block)}); }
  TraceBuilder& free_completed(std::string_view block) {
    return add(FreeCompleted{block_id(block)});
  }
  TraceBuilder& resize(std::string_view block, Bytes bytes) {
    return add(Resize{block_id(block), bytes});
  }
  TraceBuilder& label(std::string_view block, CategoryId category, std::string_view module = {},
                      std::string_view name = {}) {
    return add(Label{block_id(block), category, module_id(module), dictionary_.intern_name(name)});
  }
  TraceBuilder& sure(std::string_view block, Certainty certainty) {
    return add(Sureness{block_id(block), certainty});
  }
  TraceBuilder& stream_use(std::string_view block, std::uint32_t stream) {
    return add(StreamUse{block_id(block), StreamId(stream)});
  }

  TraceBuilder& phase_begin(Phase phase) { return add(PhaseBegin{phase}); }
  TraceBuilder& phase_end(Phase phase) { return add(PhaseEnd{phase}); }
  TraceBuilder& step() { return add(StepEnd{}); }
  TraceBuilder& marker(std::string_view name) { return add(Marker{dictionary_.intern_name(name)}); }
  TraceBuilder& collective(std::string_view name, std::string_view group, Bytes bytes) {
    return add(Collective{dictionary_.intern_name(name), dictionary_.intern_name(group), bytes});
  }

  TraceBuilder& segment_alloc(std::uint64_t address, Bytes bytes) {
    return add(SegmentAlloc{Address(address), bytes, stream_, device_id()});
  }
  TraceBuilder& segment_free(std::uint64_t address, Bytes bytes) {
    return add(SegmentFree{Address(address), bytes, device_id()});
  }
  TraceBuilder& reserved(Bytes bytes) { return add(Reserved{bytes, device_id()}); }
  TraceBuilder& empty_cache() { return add(EmptyCache{device_id()}); }
  TraceBuilder& oom(Bytes requested, OutOfMemory::Kind kind = OutOfMemory::Kind::kFailed) {
    return add(OutOfMemory{requested, device_id(), kind});
  }
  TraceBuilder& lost(std::string_view what, std::uint64_t count = 1) {
    return add(Lost{dictionary_.intern_name(what), count});
  }
  TraceBuilder& lost(Loss loss, std::uint64_t count = 1) {
    return lost(Diagnostics::name(loss), count);
  }

  // Anything at all, also what cannot be true.
  TraceBuilder& add(EventBody body) {
    time_ += tick_;
    events_.push_back({TimeNs(time_), thread_, body});
    return *this;
  }

  [[nodiscard]] const std::vector<Event>& events() const { return events_; }
  [[nodiscard]] const Dictionary& dictionary() const { return dictionary_; }
  [[nodiscard]] const RunInfo& info() const { return info_; }

  // The id behind a name; a block that was never allocated gets an id that nothing else has.
  BlockId block_id(std::string_view block) {
    const auto [found, fresh] = blocks_.try_emplace(std::string(block), BlockId(next_block_));
    if (fresh) ++next_block_;
    return found->second;
  }
  ModuleId module_id(std::string_view path, std::string_view type = "Module") {
    if (path.empty()) return ModuleId{};
    const std::size_t dot = path.rfind('.');
    const ModuleId parent =
        dot == std::string_view::npos ? ModuleId{} : module_id(path.substr(0, dot));
    return dictionary_.intern_module(path, type, parent);
  }
  StackId stack_id(std::string_view stack) {
    StackId id;
    while (!stack.empty()) {
      const std::size_t next = std::min(stack.find(" > "), stack.size());
      id = dictionary_.intern_stack(id, line_id(stack.substr(0, next)));
      stack.remove_prefix(std::min(next + 3, stack.size()));
    }
    return id;
  }
  LineId line_id(std::string_view text) {
    CodeLine line;
    line.library = text.starts_with("lib:");
    if (line.library) text.remove_prefix(4);
    const std::size_t colon = text.find(':');
    const std::size_t space = text.find(' ', colon);
    line.file = dictionary_.intern_name(text.substr(0, colon));
    line.function = dictionary_.intern_name(text.substr(space + 1));
    line.line = static_cast<std::uint32_t>(std::stoul(std::string(text.substr(colon + 1, space))));
    line.text = "line " + std::to_string(line.line);
    return dictionary_.intern_line(line);
  }
  DeviceId device_id() {
    if (!device_) device("cuda:0");
    return *device_;
  }

  // Hands words and events to a writer that has seen nothing yet.
  void write_to(TraceWriter& writer) const {
    define_words(writer);
    for (const Event& event : events_) writer.write(event);
  }
  // The recording file as bytes.
  [[nodiscard]] std::vector<std::byte> bytes(WriterOptions options = {}) const {
    std::vector<std::byte> out;
    TraceWriter writer(make_memory_sink(out), info_, options);
    write_to(writer);
    if (!writer.close().ok()) out.clear();
    return out;
  }
  [[nodiscard]] Status write(const std::string& path) const {
    Result<std::unique_ptr<Sink>> sink = open_file_sink(path);
    if (!sink.ok()) return sink.status();
    TraceWriter writer(std::move(*sink), info_);
    write_to(writer);
    return writer.close();
  }

 private:
  // In order, so that the writer gives every word the id it has here.
  void define_words(TraceWriter& writer) const {
    for (std::uint32_t i = 1; i < dictionary_.name_count(); ++i) {
      writer.name(dictionary_.name(NameId(i)));
    }
    for (std::uint32_t i = 1; i < dictionary_.op_count(); ++i) writer.op(dictionary_.op(OpId(i)));
    for (std::uint32_t i = 1; i < dictionary_.module_count(); ++i) {
      const ModuleInfo& module = dictionary_.module(ModuleId(i));
      writer.module(module.path, module.type, module.parent);
    }
    for (std::size_t i = 0; i < dictionary_.device_count(); ++i) {
      writer.device(dictionary_.device(DeviceId(static_cast<std::uint8_t>(i))));
    }
    for (std::size_t i = 0; i < dictionary_.thread_count(); ++i) {
      writer.thread(dictionary_.thread(ThreadId(static_cast<std::uint16_t>(i))));
    }
    for (std::size_t i = category::kBuiltins.size(); i < dictionary_.category_count(); ++i) {
      const CategoryInfo& info = dictionary_.category(CategoryId(static_cast<std::uint8_t>(i)));
      writer.category(info.name, info.parent);
    }
    for (std::uint32_t i = 1; i < dictionary_.line_count(); ++i) {
      writer.line(dictionary_.line(LineId(i)));
    }
    for (std::uint32_t i = 1; i < dictionary_.stack_count(); ++i) {
      const StackInfo& stack = dictionary_.stack(StackId(i));
      writer.stack(stack.caller, stack.line);
    }
  }

  Dictionary dictionary_;
  RunInfo info_;
  std::vector<Event> events_;
  std::map<std::string, BlockId> blocks_;
  std::uint64_t next_block_ = 1;
  std::uint64_t next_address_ = 0x7f00'0000'0000;
  std::int64_t time_ = 0;
  std::int64_t tick_ = 1000;
  ThreadId thread_;
  StreamId stream_;
  std::optional<DeviceId> device_;
};

}  // namespace peakline::testing
