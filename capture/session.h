// One run being tracked: all observers, from start to stop.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <peakline/event.h>
#include <peakline/status.h>
#include <peakline/trace.h>

#include "capture/alloc_gate.h"
#include "capture/devices.h"
#include "capture/host_allocator.h"
#include "capture/labels.h"
#include "capture/listeners.h"
#include "capture/module_scope.h"
#include "capture/op_observer.h"
#include "capture/recorder.h"
#include "capture/spool.h"

namespace peakline::capture {

struct SessionOptions {
  bool ops = true;
  bool cuda = false;          // watch CUDA's allocator, too
  bool cuda_trace = false;    // it is torch's caching allocator, which has a trace
  bool repeats = true;        // steps that repeat need not be watched (see StepTape)
  std::int64_t max_size = 0;  // of the recording, in bytes (see size_bound.h); 0: none
  RunInfo info;
  StackOptions stacks;
};

// At most one at a time in a process. Not thread-safe: under the GIL where there is one; start and stop
// the same thread. Who sees modules being called is apart: python/python_session.h is for Python's.
//
//   start() -> baseline: adopt, blocks, labels -> watch() -> events ... -> stop()
class Session {
 public:
  // Refuses when another session is running in this process, or the process cannot be watched.
  static Result<std::unique_ptr<Session>> start(Spool& spool, const SessionOptions& options);
  virtual ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The baseline is written; from here on observers see what happens.
  Status watch();
  // torch is as it was before start(), and the recording is complete. Later calls do nothing.
  virtual Status stop();
  // The recording can be read up to this point.
  Status sync() { return recorder_.sync(); }
  // Tracking ends here, because of something that went wrong, and the program goes on as if nobody had
  // watched; stop() puts everything back as ever. The first reason counts.
  void fail(std::string_view why) noexcept { recorder_.fail(why); }
  // Why it ended; empty while all is well.
  [[nodiscard]] std::string_view fault() noexcept { return recorder_.fault(); }
  // Called once when it ends, on whatever thread that is.
  void on_fault(void (*tell)()) noexcept { recorder_.on_fault(tell); }
  // CUDA has just been started, so its allocator can be listened to.
  void cuda_started();

  void block(int cuda_device, std::uint64_t address, std::uint64_t bytes, std::uint64_t requested,
             std::uint64_t stream);
  void segment(int cuda_device, std::uint64_t address, std::uint64_t bytes, std::uint64_t stream);
  // What was alive before and is known only as a sum.
  void foreign(int cuda_device, std::uint64_t bytes);
  // What the allocator counts now; what the recording counts must be the same.
  void total(int cuda_device, std::uint64_t bytes);

  ModuleId add_module(const std::string& path, const std::string& type, ModuleId parent) {
    return recorder_.words().module(path, type, parent);
  }
  // The one whose forward runs on this thread; none outside.
  [[nodiscard]] ModuleId running_module() const { return capture::running_module(recorder_); }
  void add_tensor(const at::Tensor& tensor, CategoryId category, ModuleId module,
                  const std::string& name);
  // The block was allocated for `module`, though another one may run; `name` says where.
  void owned_by(const at::Tensor& tensor, ModuleId module, const std::string& name);
  void fake_tensor(const at::Tensor& tensor, c10::Device device);
  // Of the blocks behind it, as the recording has them.
  [[nodiscard]] std::vector<std::uint64_t> addresses(const at::Tensor& tensor);

  void phase(Phase phase, bool begins);
  // The program is in a part of itself that it gave a name, until the end of the innermost one.
  void region_begin(const std::string& name);
  void region_end();
  void step_end() {
    recorder_.push({.kind = RawKind::kStepEnd});
    AllocGate::step_end();
  }
  void marker(const std::string& name);
  void info(const std::string& key, const std::string& value) { recorder_.info(key, value); }
  Labels& labels() noexcept { return labels_; }
  // Only in this process; a forked child neither records nor stops.
  [[nodiscard]] bool recording() const noexcept { return current_recorder() == &recorder_; }

 protected:
  static Result<Recorder*> begin(Spool& spool, const SessionOptions& options);
  Session(Recorder& recorder, const SessionOptions& options);

 private:
  Status watch_cuda();
  [[nodiscard]] bool takes_stacks() const noexcept;

  Recorder& recorder_;  // lives for ever, as the devices do
  Devices& devices_;
  Labels labels_;
  SessionOptions options_;
  std::unique_ptr<HostAllocatorObserver> host_;
  std::unique_ptr<OpObserver> ops_;
  std::optional<Listening> cuda_reports_;  // where the allocator has no trace
  bool stopped_ = false;
};

}  // namespace peakline::capture
