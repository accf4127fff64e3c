// The front that all observers write to while a run is being recorded.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <peakline/category.h>
#include <peakline/diagnostics.h>
#include <peakline/event.h>
#include <peakline/status.h>
#include <peakline/trace.h>

#include "capture/event_queue.h"
#include "capture/fault.h"
#include "capture/spool.h"
#include "capture/words.h"

namespace peakline::capture {

class Assembler;
class ExpectedAllocs;
class SourceLines;
class StepTape;

// Which allocations are recorded with the lines of Python that asked for them.
struct StackOptions {
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t from_bytes = kNever;       // those as large as this, or larger
  bool source = true;                      // with the lines' text
  std::vector<std::string> library = {};   // folders whose lines the program only calls
  std::vector<std::string> left_out = {};  // folders whose lines are nobody's business
  bool cpp = false;                        // with the calls of C++ below those of Python
  // Peakline's program started this Python with a few lines of its own: the outermost call is theirs.
  bool launched = false;
};

// The calling thread's number in the recording that it last wrote to. The model keeps the way to it to
// one instruction.
struct ThreadNumber {
  std::uint64_t recorder = 0;
  std::uint16_t id = 0;
};
extern constinit thread_local ThreadNumber t_number __attribute__((tls_model("initial-exec")));

// Takes events from any thread for the price of a spin lock, and writes them on a thread of its
// own. At most one is live in a process. Thread-safe, except start and stop.
// After stop(), and in a forked child (which has this memory but not the writing thread), it takes
// nothing, and nothing waits for it: see EventQueue.
//
// Whatever fails (the disk, memory, the writing thread) ends the recording and nothing else: fault()
// says why, what was written before is there, and everything pushed later goes nowhere.
class Recorder {
 public:
  // `spool` is shared with whoever reads the recording. The recorder is never destroyed: a thread
  // may still be about to push to it long after stop().
  static Result<Recorder*> start(Spool& spool, const RunInfo& info, const StackOptions& stacks = {},
                                 WriterOptions options = {});
  static Result<Recorder*> start(std::unique_ptr<Sink> sink, const RunInfo& info,
                                 WriterOptions options = {}, EventQueue::Patience patience = {},
                                 const StackOptions& stacks = {});
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Ends the recording: everything pushed so far is in the spool when this returns. The fault, if there
  // was one.
  Status stop();
  // Everything pushed so far is in the spool, and reading it is possible, when this returns.
  Status sync();

  Words& words() noexcept { return words_; }
  [[nodiscard]] const StackOptions& stacks() const noexcept { return stacks_; }
  void info(std::string key, std::string value);
  // From here on the ops and nodes of steps that repeat are not asked for: `expect` is told, on the
  // writing thread, what allocations to expect instead (see StepTape).
  void repeat_steps(void (*expect)(const ExpectedAllocs*)) noexcept {
    expect_.store(expect, std::memory_order_release);
  }
  void push(RawEvent event) noexcept {
    event.thread = this_thread();
    queue_.push(serial_, event);
  }
  void push_all(std::span<RawEvent> events) noexcept {
    for (RawEvent& event : events) event.thread = this_thread();
    queue_.push_all(serial_, events);
  }

  void op_end() noexcept { push({.kind = RawKind::kOpEnd}); }
  void free(DeviceId device, std::uint64_t address, std::uint64_t bytes) noexcept;
  void label(DeviceId device, std::uint64_t address, CategoryId category, ModuleId module,
             NameId name) noexcept;
  void phase(Phase phase, bool begins) noexcept;
  void lost(Loss loss, std::uint64_t count = 1) noexcept;

  // The number of the calling thread in the recording.
  std::uint16_t this_thread() noexcept {
    return t_number.recorder == serial_ ? t_number.id : meet_thread();
  }
  // Different for every recorder of this process.
  [[nodiscard]] std::uint64_t serial() const noexcept { return serial_; }
  // Between start() and stop(), in the process that started it.
  [[nodiscard]] bool live() const noexcept;
  // Ends the recording because of something that went wrong. From any thread, inside anything; takes no
  // memory and does not wait. The first reason counts.
  void fail(std::string_view why) noexcept;
  // Empty while all is well. From any thread.
  [[nodiscard]] std::string_view fault() noexcept;
  // Called once by fail(), on whatever thread that is.
  void on_fault(void (*tell)()) noexcept { tell_.store(tell, std::memory_order_release); }
  // "cpu" is made first, so it is always there.
  [[nodiscard]] DeviceId host() const noexcept { return DeviceId{}; }

 private:
  Recorder(EventQueue& queue, std::unique_ptr<Sink> sink, const RunInfo& info,
           WriterOptions options, EventQueue::Patience patience, const StackOptions& stacks);
  Status begin();
  void write_loop();
  void record();
  void write_batch(const EventQueue::Batch& batch, Assembler& assembler, StepTape& tape,
                   SourceLines* texts);
  void flush(std::uint64_t asked);
  void end_early(bool whole) noexcept;
  void drop_rest();
  std::uint16_t meet_thread() noexcept;
  void before_fork();
  void after_fork(bool in_child);

  EventQueue& queue_;
  EventQueue::Patience patience_;
  std::uint64_t serial_;
  StackOptions stacks_;
  Words words_;
  std::optional<TraceWriter> writer_;  // only the writing thread touches it while that runs
  std::mutex info_mutex_;
  RunInfo late_info_;
  std::atomic<bool> stopping_{false};
  Fault fault_;
  std::atomic<void (*)()> tell_{nullptr};
  std::atomic<void (*)(const ExpectedAllocs*)> expect_{nullptr};
  std::atomic<std::uint64_t> flushes_asked_{0};
  std::atomic<std::uint64_t> flushes_done_{0};
  std::thread thread_;
};

// The recorder that observers write to; null while nothing is recorded. In a forked child it is
// null.
extern std::atomic<Recorder*> g_recorder;
inline Recorder* current_recorder() noexcept { return g_recorder.load(std::memory_order_acquire); }

// Runs what an observer does beside the program's own calls. What it throws ends the recording, and goes
// no further.
template <class Observe>
void undisturbed(Recorder& recorder, Observe&& observe) noexcept {
  try {
    observe();
  } catch (const std::exception& error) {
    recorder.fail(error.what());
  } catch (...) {
    recorder.fail("an unknown error");
  }
}

}  // namespace peakline::capture
