#include "capture/dropin/mem_book.h"

#include <algorithm>

namespace peakline::dropin {

Block& MemBook::add(Block block, c10::Device device) {
  remove(block.address);
  block.device = counts.slot(device);
  block.labelled = std::min(block.labelled, block.bytes);
  return BlockBook::add(std::move(block));
}

void MemBook::remove(BlockKey key) {
  if (const Block* found = find(key)) BlockBook::remove(*found);
}

void MemBook::relabel(Block& block, int category, std::int64_t labelled) {
  update(block, [=](Block& changed) {
    changed.category = static_cast<std::int8_t>(category);
    changed.labelled = std::min(labelled, changed.bytes);
    changed.state = Block::State::kSettled;
  });
}

void MemBook::resize(Block& block, std::int64_t bytes) {
  update(block, [=](Block& changed) {
    changed.bytes = bytes;
    changed.labelled = std::min(changed.labelled, bytes);
  });
}

void MemBook::set_aside(Block& block) {
  update(block, [](Block& changed) {
    changed.state = Block::State::kSetAside;
    changed.labelled = 0;
  });
}

void MemBook::drop_dead(bool externals_only) {
  const auto dead = [](const Block& block) { return block.storage && block.storage->expired(); };
  std::vector<BlockKey> gone;
  if (externals_only) {
    std::erase_if(externals_, [&](BlockKey key) {
      const Block* block = find(key);
      if (block == nullptr) return true;
      if (!dead(*block)) return false;
      gone.push_back(key);
      return true;
    });
  } else {
    for_each([&](const Block& block) {
      if (dead(block)) gone.push_back(block.address);
    });
  }
  for (const BlockKey key : gone) remove(key);
}

}  // namespace peakline::dropin
