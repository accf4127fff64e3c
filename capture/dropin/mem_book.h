// The blocks that MemTracker counts.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "capture/block_book.h"
#include "capture/dropin/usage.h"

namespace peakline::dropin {

using BlockKey = std::uint64_t;  // an address: of real memory, or made up (see fake_storage.h)
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

struct Block {
  enum class State : std::uint8_t {
    kPending,   // taken inside an operator that has not ended
    kSetAside,  // the operator ended and did not return it: library memory
    kSettled,
  };
  BlockKey address = 0;
  std::int64_t bytes = 0;     // what the allocator gave
  std::int64_t labelled = 0;  // what the tensor in it needs; the rest of `bytes` has no label
  std::int8_t category = 0;
  std::uint8_t device = 0;
  State state = State::kSettled;
  std::optional<WeakStorage> storage = std::nullopt;
};

// Not thread-safe: the engine locks around it. Reports are not trusted: a free of an unknown block
// is nothing, a second allocation at an address replaces the first.
class MemBook : public capture::BlockBook<Block, UsageCounts> {
 public:
  using BlockBook::BlockBook;

  // The reference holds until the next add or remove.
  Block& add(Block block, c10::Device device);
  void remove(BlockKey key);
  [[nodiscard]] c10::Device device_of(const Block& block) const {
    return counts.device(block.device);
  }

  // `labelled` is cut to the block's size.
  void relabel(Block& block, int category, std::int64_t labelled);
  void resize(Block& block, std::int64_t bytes);
  void set_aside(Block& block);

  // Drops every block whose storage is gone. `externals_only`: of those alive when tracking began.
  void drop_dead(bool externals_only);
  void note_external(BlockKey key) { externals_.push_back(key); }

 private:
  std::vector<BlockKey> externals_;
};

}  // namespace peakline::dropin
