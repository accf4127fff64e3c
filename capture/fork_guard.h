// Locks that a forked child must not find held by a thread that it does not have.
#pragma once

#include <cstdint>
#include <functional>

namespace peakline::capture {

// The order in which a fork takes locks: whoever holds one may wait only for those after it.
enum class ForkOrder : std::uint8_t { kListeners, kRecording, kGate, kOps, kLast };

// Before a fork every owner takes its locks; afterwards, in both processes, it gives them back. So
// in the child everything is whole and free, and each owner decides what it still does there.
class ForkGuard {
 public:
  // `owner` only names the entry. Fails never; from the first call on the process is prepared.
  static void add(ForkOrder order, const void* owner, std::function<void()> before,
                  std::function<void(bool in_child)> after);
  static void remove(const void* owner);
};

// A lock of which that is all there is to say.
template <class Lock>
class ForkSafe : public Lock {
 public:
  explicit ForkSafe(ForkOrder order) {
    ForkGuard::add(
        order, this, [this] { this->lock(); }, [this](bool) { this->unlock(); });
  }
  ~ForkSafe() { ForkGuard::remove(this); }
  ForkSafe(const ForkSafe&) = delete;
  ForkSafe& operator=(const ForkSafe&) = delete;
};

}  // namespace peakline::capture
