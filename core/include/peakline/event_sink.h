// Where events go that are made from somebody else's file.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include <peakline/dictionary.h>
#include <peakline/event.h>
#include <peakline/status.h>
#include <peakline/trace.h>

namespace peakline {

// Takes a stream of events and the words they use; words come before the events that use them.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual DeviceId device(const DeviceInfo& device) = 0;
  virtual OpId op(std::string_view name) = 0;
  virtual NameId name(std::string_view text) = 0;
  virtual LineId line(const CodeLine& line) = 0;
  virtual StackId stack(StackId caller, LineId line) = 0;
  virtual void info(std::string_view key, std::string_view value) = 0;
  virtual Status write(const Event& event) = 0;
};

// Writes a recording. `writer` outlives the sink and is closed by whoever made it.
std::unique_ptr<EventSink> make_writer_sink(TraceWriter& writer);

// Calls `on_event` for every event; `dictionary` learns the words. Both outlive the sink.
std::unique_ptr<EventSink> make_callback_sink(Dictionary& dictionary, RunInfo& info,
                                              std::function<Status(const Event&)> on_event);

}  // namespace peakline
