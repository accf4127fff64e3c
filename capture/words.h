// The recording's words, as the threads of the program learn them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <peakline/dictionary.h>
#include <peakline/trace.h>

#include "capture/source_lines.h"

namespace peakline::capture {

// Gives out ids at once, on any thread, and tells the writer the words later, on its own thread, in
// the same order, so that both agree. Thread-safe.
class Words {
 public:
  OpId op(std::string_view name) {
    const std::lock_guard guard(mutex_);
    return words_.intern_op(name);
  }
  NameId name(std::string_view text) {
    const std::lock_guard guard(mutex_);
    return words_.intern_name(text);
  }
  ModuleId module(std::string_view path, std::string_view type, ModuleId parent) {
    const std::lock_guard guard(mutex_);
    return words_.intern_module(path, type, parent);
  }
  DeviceId device(const DeviceInfo& device) {
    const std::lock_guard guard(mutex_);
    return words_.intern_device(device);
  }
  ThreadId thread(std::string_view name) {
    const std::lock_guard guard(mutex_);
    return words_.intern_thread(name);
  }

  // A line of the program, and a stack of such lines, the outermost first.
  LineId line(std::string_view file, std::string_view function, std::uint32_t number, bool library);
  StackId stack(std::span<const LineId> lines);

  // Gives the writer every word that it does not have yet; lines with their text when there are
  // `sources`.
  void tell(TraceWriter& writer, SourceLines* sources = nullptr);
  // Forgets everything; ids given out before mean nothing any more.
  void clear();
  // For the forking thread: nobody is in the middle of anything meanwhile.
  [[nodiscard]] std::mutex& mutex() noexcept { return mutex_; }

 private:
  // So many words of each table; the first of some is there from the beginning.
  struct Counts {
    std::size_t names, ops, modules, devices, threads, lines, stacks;
  };
  [[nodiscard]] static Counts count(const Dictionary& words) noexcept;

  struct Place {
    std::string file;
    std::uint32_t number;
  };
  [[nodiscard]] std::vector<Place> new_places();
  void tell_code(TraceWriter& writer, const std::vector<std::string>& texts, std::size_t stacks);

  std::mutex mutex_;
  Dictionary words_;
  Counts told_ = count(words_);
};

}  // namespace peakline::capture
