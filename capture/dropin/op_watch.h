// Operator calls as a TorchDispatchMode would see them, without Python.
#pragma once

#include <ATen/record_function.h>

#include <memory>
#include <string>

namespace peakline::dropin {

// One operator overload, as met by the watch. Lives as long as the process.
struct OpFacts {
  std::string name;        // "aten::addmm"
  std::string overload;    // "out", or empty
  bool composite = false;  // decomposes above autograd, so a dispatch mode sees its parts instead
};

// Told at the end of each outermost non-composite operator. Called on the thread that ran it, with
// or without the GIL; must be thread-safe.
class OpListener {
 public:
  virtual ~OpListener() = default;
  virtual void on_op_end(const at::RecordFunction& call, const OpFacts& op) = 0;
};

// While it lives, `listener` is told of operators on the constructing thread and on autograd's
// threads working for it. Construct and destroy on one thread. `outputs`: whether call.outputs() is
// filled.
class OpWatch {
 public:
  OpWatch(std::shared_ptr<OpListener> listener, bool outputs);
  ~OpWatch();
  OpWatch(const OpWatch&) = delete;
  OpWatch& operator=(const OpWatch&) = delete;

 private:
  std::shared_ptr<OpListener> listener_;
};

// Whether this thread is inside a watched operator.
[[nodiscard]] bool inside_op() noexcept;

}  // namespace peakline::dropin
