#include <peakline/ledger.h>

#include "base/capped.h"

namespace peakline {
namespace {

constexpr unsigned kFirstBits = 10;

// Whether `bytes` more make a total that can be.
bool fits(Bytes total, Bytes bytes) { return bytes <= kMostBytes - total; }
bool is_size(Bytes bytes) { return bytes >= Bytes{} && bytes <= kMostBytes; }

}  // namespace

Ledger::Ledger(Diagnostics& diagnostics)
    : diagnostics_(diagnostics), index_(std::size_t{1} << kFirstBits), shift_(64 - kFirstBits) {}

const Block* Ledger::on(const Alloc& alloc, const Birth& birth, ModuleId module, OpId op) {
  if (alloc.bytes < Bytes{}) {
    diagnostics_.count(Loss::kNegativeSize);
    return nullptr;
  }
  if (!fits(totals(alloc.device).allocated, alloc.bytes)) {
    diagnostics_.count(Loss::kImpossibleSize);
    return nullptr;
  }
  if ((used_ + 1) * 2 > index_.size()) grow();
  Entry& entry = index_[probe(alloc.block)];
  if (entry.slot != kFree) {
    diagnostics_.count(Loss::kBlockTwice);
    return nullptr;
  }
  const std::uint32_t slot = take_slot();
  entry = {alloc.block, slot};
  ++used_;
  const Bytes requested = is_size(alloc.requested) ? alloc.requested : alloc.bytes;
  blocks_[slot] =
      Block{alloc.block,  alloc.bytes,  requested,    birth,         module,           op, NameId{},
            alloc.stream, alloc.device, CategoryId{}, alloc.address, Certainty::kExact};
  totals_of(alloc.device).allocated += alloc.bytes;
  return &blocks_[slot];
}

const Block* Ledger::on(const Label& label) {
  const std::size_t at = locate(label.block);
  if (at == index_.size()) {
    diagnostics_.count(Loss::kUnknownBlock);
    return nullptr;
  }
  Block& block = blocks_[index_[at].slot];
  block.label = label.category;
  if (label.module != ModuleId{}) block.module = label.module;
  if (label.name != NameId{}) block.name = label.name;
  return &block;
}

void Ledger::on(const Sureness& sureness) {
  const std::size_t at = locate(sureness.block);
  if (at == index_.size()) return diagnostics_.count(Loss::kUnknownBlock);
  blocks_[index_[at].slot].certainty = sureness.certainty;
}

const Block* Ledger::on(const Free& free) {
  const std::size_t at = locate(free.block);
  if (at == index_.size()) {
    diagnostics_.count(Loss::kUnknownBlock);
    return nullptr;
  }
  const std::uint32_t slot = index_[at].slot;
  const Block& block = blocks_[slot];
  totals_of(block.device).allocated -= block.bytes;
  free_slots_.push_back(slot);
  erase(at);
  return &block;  // its slot is not written before the next alloc
}

const Block* Ledger::on(const Resize& resize, std::uint64_t event) {
  const std::size_t at = locate(resize.block);
  if (at == index_.size() || resize.bytes < Bytes{}) {
    diagnostics_.count(at == index_.size() ? Loss::kUnknownBlock : Loss::kNegativeSize);
    return nullptr;
  }
  Block& block = blocks_[index_[at].slot];
  if (!fits(totals(block.device).allocated - block.bytes, resize.bytes)) {
    diagnostics_.count(Loss::kImpossibleSize);
    return nullptr;
  }
  before_resize_ = block;
  totals_of(block.device).allocated += resize.bytes - block.bytes;
  block.bytes = resize.bytes;
  block.requested = resize.bytes;
  block.birth.event = event;
  return &before_resize_;
}

void Ledger::on(const SegmentAlloc& segment) {
  if (segment.bytes < Bytes{}) {
    diagnostics_.count(Loss::kNegativeSize);
    return;
  }
  DeviceTotals& totals = totals_of(segment.device);
  if (!fits(totals.reserved, segment.bytes)) return diagnostics_.count(Loss::kImpossibleSize);
  totals.reserved += segment.bytes;
  totals.knows_reserved = true;
  ++totals.segments;
}

void Ledger::on(const SegmentFree& segment) {
  DeviceTotals& totals = totals_of(segment.device);
  if (segment.bytes < Bytes{} || segment.bytes > totals.reserved) {
    diagnostics_.count(Loss::kNegativeReserved);
    return;
  }
  totals.reserved -= segment.bytes;
}

void Ledger::on(const Reserved& reserved) {
  if (reserved.bytes < Bytes{}) {
    diagnostics_.count(Loss::kNegativeSize);
    return;
  }
  if (!is_size(reserved.bytes)) return diagnostics_.count(Loss::kImpossibleSize);
  DeviceTotals& totals = totals_of(reserved.device);
  totals.reserved = reserved.bytes;
  totals.knows_reserved = true;
}

void Ledger::on(const OutOfMemory& oom) {
  DeviceTotals& totals = totals_of(oom.device);
  ++(oom.kind == OutOfMemory::Kind::kRetry ? totals.retries : totals.ooms);
}

const Block* Ledger::find(BlockId id) const noexcept {
  const std::size_t at = locate(id);
  return at == index_.size() ? nullptr : &blocks_[index_[at].slot];
}

const DeviceTotals& Ledger::totals(DeviceId device) const noexcept {
  static const DeviceTotals kNone;
  return device.raw() < totals_.size() ? totals_[device.raw()] : kNone;
}

DeviceTotals& Ledger::totals_of(DeviceId device) {
  if (device.raw() >= totals_.size()) totals_.resize(device.raw() + std::size_t{1});
  return totals_[device.raw()];
}

// Fibonacci hashing: ids are given out in a row, and identity would line long-lived ones up in a
// row too.
std::size_t Ledger::home(BlockId id) const noexcept {
  return static_cast<std::size_t>((id.raw() * 0x9E3779B97F4A7C15ULL) >> shift_);
}

std::size_t Ledger::probe(BlockId id) const noexcept {
  const std::size_t mask = index_.size() - 1;
  std::size_t at = home(id);
  while (index_[at].slot != kFree && index_[at].id != id) at = (at + 1) & mask;
  return at;
}

std::size_t Ledger::locate(BlockId id) const noexcept {
  const std::size_t at = probe(id);
  return index_[at].slot == kFree ? index_.size() : at;
}

std::uint32_t Ledger::take_slot() {
  if (free_slots_.empty()) {
    blocks_.emplace_back();
    return static_cast<std::uint32_t>(blocks_.size() - 1);
  }
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

// Closes the hole by moving later entries of the same run back, so that no tombstones pile up.
void Ledger::erase(std::size_t at) {
  const std::size_t mask = index_.size() - 1;
  std::size_t hole = at;
  for (std::size_t next = (at + 1) & mask; index_[next].slot != kFree; next = (next + 1) & mask) {
    const std::size_t distance_from_home = (next - home(index_[next].id)) & mask;
    const std::size_t distance_from_hole = (next - hole) & mask;
    if (distance_from_home >= distance_from_hole) {
      index_[hole] = index_[next];
      hole = next;
    }
  }
  index_[hole] = Entry{};
  --used_;
}

void Ledger::grow() {
  std::vector<Entry> old(index_.size() * 2);
  old.swap(index_);
  --shift_;
  for (const Entry& entry : old) {
    if (entry.slot != kFree) index_[probe(entry.id)] = entry;
  }
}

}  // namespace peakline
