// Imported files as events in memory, and pickles written by hand.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <peakline/event_sink.h>
#include <peakline/import.h>
#include <peakline/trace.h>

#include "event_text.h"

namespace peakline::testing {

inline std::unique_ptr<Source> source_of(std::string_view text) {
  return make_memory_source(std::as_bytes(std::span(text.data(), text.size())));
}

// What an import gave.
struct Imported {
  Status status;
  ImportedCounts counts;
  std::vector<Event> events;
  Dictionary dictionary;
  RunInfo info;

  template <class Body>
  [[nodiscard]] std::vector<Body> all() const {
    std::vector<Body> out;
    for (const Event& event : events) {
      if (const auto* body = std::get_if<Body>(&event.body)) out.push_back(*body);
    }
    return out;
  }
};

template <class Import>
std::unique_ptr<Imported> imported(Import import) {
  auto out = std::make_unique<Imported>();
  const auto sink = make_callback_sink(out->dictionary, out->info, [&](const Event& event) {
    out->events.push_back(event);
    return Status{};
  });
  const Result<ImportedCounts> counts = import(*sink);
  if (counts.ok())
    out->counts = *counts;
  else
    out->status = counts.status();
  return out;
}

inline std::unique_ptr<Imported> imported_csv(std::string_view text) {
  const auto source = source_of(text);
  return imported([&](EventSink& sink) { return import_csv(*source, sink); });
}

inline std::unique_ptr<Imported> imported_snapshot(std::string_view bytes) {
  return imported([&](EventSink& sink) {
    return import_snapshot([&]() -> Result<std::unique_ptr<Source>> { return source_of(bytes); },
                           sink);
  });
}

// Writes a pickle of protocol 4 the way Python does, as far as tests need it.
class PickleWriter {
 public:
  PickleWriter() { bytes_ += std::string("\x80\x04", 2); }
  PickleWriter& op(char c) { return bytes_ += c, *this; }
  PickleWriter& text(std::string_view word) {
    bytes_ += '\x8c';
    bytes_ += static_cast<char>(word.size());
    bytes_ += word;
    return op('\x94');
  }
  PickleWriter& number(std::int64_t value) {
    bytes_ += std::string("\x8a\x08", 2);
    char raw[8];
    std::memcpy(raw, &value, 8);
    bytes_.append(raw, 8);
    return *this;
  }
  PickleWriter& list() { return op(']').op('\x94').op('('); }
  PickleWriter& end_list() { return op('e'); }
  PickleWriter& dict() { return op('}').op('\x94').op('('); }
  PickleWriter& end_dict() { return op('u'); }
  [[nodiscard]] std::string done() const { return bytes_ + "."; }

  // `line`: of train.py, where the program was; 0: no frames.
  PickleWriter& entry(std::string_view action, std::int64_t address, std::int64_t size,
                      std::int64_t time = 0, std::int64_t line = 0, std::int64_t stream = 0) {
    dict();
    text("action").text(action).text("addr").number(address).text("size").number(size);
    text("stream").number(stream).text("time_us").number(time);
    if (line != 0) {
      text("frames").list().dict().text("filename").text("train.py").text("line").number(line);
      text("name").text("step").end_dict().end_list();
    }
    return end_dict();
  }

 private:
  std::string bytes_;
};

}  // namespace peakline::testing
