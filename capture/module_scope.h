// A module's call on this thread, for whoever sees it begin and end.
#pragma once

#include <peakline/ids.h>

#include "capture/recorder.h"

namespace peakline::capture {

// The module whose call runs on this thread, the innermost; none outside.
[[nodiscard]] ModuleId running_module(const Recorder& recorder) noexcept;

// The call of `module` lasts as long as this does. The recording may end inside it.
class ModuleScope {
 public:
  ModuleScope(Recorder& recorder, ModuleId module) noexcept;
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  Recorder& recorder_;  // lives for ever
  ModuleId module_;
  ModuleId around_;
  bool recompute_;
};

// No module runs on this thread, and no autograd node: a call that begins now is an outermost forward.
[[nodiscard]] bool outside_modules(const Recorder& recorder) noexcept;

}  // namespace peakline::capture
