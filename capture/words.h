// The recording's words, as the threads of the program learn them.
#pragma once

#include <cstddef>
#include <mutex>
#include <string_view>

#include <peakline/dictionary.h>
#include <peakline/trace.h>

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

  // Gives the writer every word that it does not have yet.
  void tell(TraceWriter& writer);
  // Forgets everything; ids given out before mean nothing any more.
  void clear();
  // For the forking thread: nobody is in the middle of anything meanwhile.
  [[nodiscard]] std::mutex& mutex() noexcept { return mutex_; }

 private:
  // So many words of each table; the first of some is there from the beginning.
  struct Counts {
    std::size_t names, ops, modules, devices, threads;
  };
  [[nodiscard]] static Counts count(const Dictionary& words) noexcept;

  std::mutex mutex_;
  Dictionary words_;
  Counts told_ = count(words_);
};

}  // namespace peakline::capture
