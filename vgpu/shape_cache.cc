#include "vgpu/shape_cache.h"

#include <algorithm>

namespace peakline::vgpu {
namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace

std::uint64_t hash_words(std::span<const std::uint64_t> words) noexcept {
  std::uint64_t hash = 0x9E3779B97F4A7C15U ^ words.size();
  for (const std::uint64_t word : words) {
    hash = mix(hash ^ word, 0xD6E8FEB86659FD93U) + 0x2545F4914F6CDD1DU;
  }
  return hash;
}

const ShapeEntry* ShapeCache::find(std::uint64_t hash,
                                   std::span<const std::uint64_t> key) noexcept {
  const std::lock_guard guard(mutex_);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = hash & mask; slots_[i].entry != nullptr; i = (i + 1) & mask) {
    if (slots_[i].hash == hash && std::ranges::equal(slots_[i].entry->key, key)) {
      return slots_[i].entry;
    }
  }
  return nullptr;
}

void ShapeCache::place(Slot slot) noexcept {
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = slot.hash & mask;
  while (slots_[i].entry != nullptr) i = (i + 1) & mask;
  slots_[i] = slot;
}

const ShapeEntry* ShapeCache::add(std::uint64_t hash, std::unique_ptr<ShapeEntry> entry) {
  const std::lock_guard guard(mutex_);
  if ((entries_.size() + 1) * 2 > slots_.size()) {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.entry != nullptr) place(slot);
    }
  }
  const ShapeEntry* added = entries_.emplace_back(std::move(entry)).get();
  place({hash, added});
  return added;
}

}  // namespace peakline::vgpu
