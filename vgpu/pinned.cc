#include "vgpu/pinned.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>

namespace peakline::vgpu {
namespace {

struct Block {
  std::size_t bytes = 0;
  std::uint64_t session = 0;
};

struct Pinned {
  std::mutex mutex;
  std::map<const char*, Block> blocks;  // by where they begin
  std::uint64_t session = 0;            // blocks of earlier ones live on, and count no more
  std::size_t bytes = 0;
  std::size_t peak = 0;

  void forget(const char* data) {
    const auto found = blocks.find(data);
    if (found == blocks.end()) return;
    if (found->second.session == session) bytes -= found->second.bytes;
    blocks.erase(found);
  }
};
Pinned& pinned() {
  static auto* const kPinned = new Pinned;
  return *kPinned;
}

struct Held {
  c10::DataPtr data;
};

void release(void* context) {
  const std::unique_ptr<Held> held(static_cast<Held*>(context));
  forget_pinned(held->data.get());
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    auto held = std::make_unique<Held>(Held{c10::GetCPUAllocator()->allocate(bytes)});
    void* data = held->data.get();
    if (data != nullptr) note_pinned(data, bytes);
    return {data, held.release(), &release, c10::Device(c10::kCPU)};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

c10::Allocator& pinned_allocator() {
  static auto* const kAllocator = new PinnedAllocator;
  return *kAllocator;
}

void note_pinned(const void* data, std::size_t bytes) {
  const std::lock_guard guard(pinned().mutex);
  const auto* begin = static_cast<const char*>(data);
  pinned().forget(begin);
  pinned().blocks.emplace(begin, Block{bytes, pinned().session});
  pinned().bytes += bytes;
  pinned().peak = std::max(pinned().peak, pinned().bytes);
}

void forget_pinned(const void* data) noexcept {
  const std::lock_guard guard(pinned().mutex);
  pinned().forget(static_cast<const char*>(data));
}

std::size_t pinned_peak() {
  const std::lock_guard guard(pinned().mutex);
  return pinned().peak;
}

void reset_pinned_peak() {
  const std::lock_guard guard(pinned().mutex);
  ++pinned().session;
  pinned().bytes = pinned().peak = 0;
}

bool is_pinned(const void* data) {
  const auto* byte = static_cast<const char*>(data);
  const std::lock_guard guard(pinned().mutex);
  auto after = pinned().blocks.upper_bound(byte);
  if (after == pinned().blocks.begin()) return false;
  --after;
  return byte < after->first + after->second.bytes || byte == after->first;
}

}  // namespace peakline::vgpu
