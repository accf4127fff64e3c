// What is known of one storage's bytes at one time, or how to find it out.
//
//   fill_(0)          constant ─┐
//   copy from host    bytes  ───┼──► Computation (op, operands) ──► evaluate(): bytes or bounds
//   softmax, rand     range  ───┘         remembered, run when somebody asks
//
// A write to a storage gives it another Value; the old one stays for what was computed from it.
#pragma once

#include <c10/core/Scalar.h>
#include <c10/core/Storage.h>

#include <atomic>
#include <memory>
#include <optional>

#include "vgpu/values/bounds.h"

namespace peakline::vgpu {

class Computation;
class Value;
using ValuePtr = std::shared_ptr<Value>;

// The outcome. Neither: nothing is known.
struct Known {
  c10::Storage bytes;            // every element, exactly
  std::optional<Bounds> bounds;  // of the elements of the whole storage
};

// Immutable but for what evaluation adds. Thread-safe.
class Value final {
 public:
  static ValuePtr of_bytes(c10::Storage bytes);
  // `size` bytes of elements that are all alike; known exactly where they are few.
  static ValuePtr of_constant(const c10::Scalar& number, c10::ScalarType dtype, std::uint64_t size,
                              bool few);
  // `whole`: only whole numbers, whatever the type.
  static ValuePtr of_range(Range range, c10::ScalarType dtype, bool whole, bool picked);
  // Result number `slot` of a computation.
  static ValuePtr deferred(std::shared_ptr<Computation> from, int slot, c10::ScalarType dtype,
                           bool exact);

  // Finds out, now, unless it was found before.
  Known evaluate();

  // Everything is known: evaluate() gives bytes, unless the host cannot compute the op.
  [[nodiscard]] bool exact() const noexcept { return exact_.load(std::memory_order_relaxed); }
  [[nodiscard]] c10::ScalarType dtype() const noexcept { return dtype_; }
  // Choices of a top-k or an argmax, moved about but not calculated with.
  [[nodiscard]] bool picked() const noexcept { return picked_; }
  // Only whole numbers are among them.
  [[nodiscard]] bool whole() const noexcept { return whole_; }
  // A stand-in that the run's producer made up (`assume`), or calculated from one.
  [[nodiscard]] bool assumed() const noexcept { return assumed_; }
  void set_assumed() noexcept { assumed_ = true; }

  // How many computations deep, and how many bytes it keeps alive.
  [[nodiscard]] std::uint32_t depth() const noexcept { return depth_; }
  [[nodiscard]] std::uint64_t held() const noexcept { return held_; }

 private:
  [[nodiscard]] Known constant_bytes() const;
  // What it was computed from is let go of.
  void settle();

  std::atomic<bool> exact_{false};
  c10::ScalarType dtype_ = c10::kByte;
  bool picked_ = false;
  bool whole_ = false;
  bool assumed_ = false;
  bool settled_ = false;
  std::atomic<std::uint32_t> depth_{0};
  std::atomic<std::uint64_t> held_{0};
  std::optional<c10::Scalar> constant_;
  std::uint64_t size_ = 0;
  std::optional<Range> range_;
  std::shared_ptr<Computation> from_;
  int slot_ = 0;
  Known known_;
};

// Host memory from torch's own allocator, which no recording watches: the program did not ask for
// these bytes.
c10::Storage host_storage(std::uint64_t bytes);
// The bytes as a tensor with this layout.
at::Tensor host_view(const c10::Storage& storage, caffe2::TypeMeta dtype, c10::IntArrayRef sizes,
                     c10::IntArrayRef strides, std::int64_t offset);

}  // namespace peakline::vgpu
