// Whole recordings in one call, for tests.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <peakline/trace.h>

#include "event_text.h"

namespace peakline::testing {

// Everything that a reader says about a recording. With a bad status, what it said before.
struct ReadTrace {
  Status status;
  std::vector<Event> events;
  Dictionary dictionary;
  RunInfo info;
  Diagnostics diagnostics;

  [[nodiscard]] std::vector<std::string> texts() const {
    std::vector<std::string> out;
    for (const Event& event : events) out.push_back(to_text(event));
    return out;
  }
};

inline ReadTrace read_trace(std::unique_ptr<Source> source) {
  ReadTrace out;
  Result<TraceReader> reader = TraceReader::open(std::move(source));
  if (!reader.ok()) {
    out.status = reader.status();
    return out;
  }
  while (true) {
    const Result<std::span<const Event>> batch = reader->next();
    if (!batch.ok()) out.status = batch.status();
    if (!batch.ok() || batch->empty()) break;
    out.events.insert(out.events.end(), batch->begin(), batch->end());
  }
  out.dictionary = reader->dictionary();
  out.info = reader->info();
  out.diagnostics = reader->diagnostics();
  return out;
}

inline ReadTrace read_trace(std::span<const std::byte> bytes) {
  return read_trace(make_memory_source(bytes));
}

}  // namespace peakline::testing
