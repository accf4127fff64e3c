#include <peakline/event_sink.h>

namespace peakline {
namespace {

class WriterSink final : public EventSink {
 public:
  explicit WriterSink(TraceWriter& writer) : writer_(writer) {}
  DeviceId device(const DeviceInfo& device) override { return writer_.device(device); }
  OpId op(std::string_view name) override { return writer_.op(name); }
  NameId name(std::string_view text) override { return writer_.name(text); }
  LineId line(const CodeLine& line) override { return writer_.line(line); }
  StackId stack(StackId caller, LineId line) override { return writer_.stack(caller, line); }
  void info(std::string_view key, std::string_view value) override { writer_.info(key, value); }
  Status write(const Event& event) override {
    writer_.write(event);
    return writer_.status();
  }

 private:
  TraceWriter& writer_;
};

class CallbackSink final : public EventSink {
 public:
  CallbackSink(Dictionary& dictionary, RunInfo& info, std::function<Status(const Event&)> on_event)
      : dictionary_(dictionary), info_(info), on_event_(std::move(on_event)) {}
  DeviceId device(const DeviceInfo& device) override { return dictionary_.intern_device(device); }
  OpId op(std::string_view name) override { return dictionary_.intern_op(name); }
  NameId name(std::string_view text) override { return dictionary_.intern_name(text); }
  LineId line(const CodeLine& line) override { return dictionary_.intern_line(line); }
  StackId stack(StackId caller, LineId line) override {
    return dictionary_.intern_stack(caller, line);
  }
  void info(std::string_view key, std::string_view value) override {
    info_.insert_or_assign(std::string(key), std::string(value));
  }
  Status write(const Event& event) override { return on_event_(event); }

 private:
  Dictionary& dictionary_;
  RunInfo& info_;
  std::function<Status(const Event&)> on_event_;
};

}  // namespace

std::unique_ptr<EventSink> make_writer_sink(TraceWriter& writer) {
  return std::make_unique<WriterSink>(writer);
}

std::unique_ptr<EventSink> make_callback_sink(Dictionary& dictionary, RunInfo& info,
                                              std::function<Status(const Event&)> on_event) {
  return std::make_unique<CallbackSink>(dictionary, info, std::move(on_event));
}

}  // namespace peakline
