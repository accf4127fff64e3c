// The recording's words, as the threads of the program learn them.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <peakline/dictionary.h>
#include <peakline/trace.h>

namespace peakline::capture {

// Gives out ids at once, on any thread, and tells the writer the words later, on its own thread, in
// the same order, so that both agree. Thread-safe, except tell().
class Words {
 public:
  OpId op(std::string_view name);
  NameId name(std::string_view text);
  ModuleId module(std::string_view path, std::string_view type, ModuleId parent);
  DeviceId device(const DeviceInfo& device);
  ThreadId thread(std::string_view name);

  // Gives the writer every word that it does not have yet.
  void tell(TraceWriter& writer);
  // Forgets everything; ids given out before mean nothing any more.
  void clear();
  // For the forking thread: nobody is in the middle of anything meanwhile.
  [[nodiscard]] std::mutex& mutex() noexcept { return mutex_; }

 private:
  using Definition = std::function<void(TraceWriter&)>;

  std::mutex mutex_;
  Dictionary dictionary_;
  std::vector<Definition> untold_;
};

}  // namespace peakline::capture
