#include "report/moment_book.h"

#include <algorithm>

#include "report/categories.h"

namespace peakline {
namespace {

bool in_order(const AliveChange& a, const AliveChange& b) {
  return a.point != b.point ? a.point < b.point : a.key < b.key;
}

}  // namespace

MomentBook::MomentBook(DeviceId device, std::vector<Moment> moments, std::size_t most_changes)
    : device_(device),
      moments_(std::move(moments)),
      slots_(moments_.size()),
      home_(moments_.size()),
      most_changes_(std::max<std::size_t>(most_changes, 1)),
      compact_at_(4 * most_changes_) {
  for (std::uint32_t i = 0; i < home_.size(); ++i) home_[i] = i;
}

std::uint32_t MomentBook::moment_at(std::uint64_t event) const {
  const auto found = std::ranges::lower_bound(moments_, event, {}, &Moment::event);
  return static_cast<std::uint32_t>(found - moments_.begin());
}

// Moments that were passed by keep the totals that they saw.
void MomentBook::advance(std::uint64_t event) {
  while (current_ < moments_.size() && moments_[current_].event < event) {
    slots_[current_].allocated = allocated_;
    if (++current_ == moments_.size()) return;
    slots_[current_].lowest = slots_[current_].highest = allocated_;
    slots_[current_].reserved = reserved_;
  }
}

void MomentBook::observe(const Now& now) {
  advance(now.event);
  const DeviceTotals& totals = now.ledger.totals(device_);
  allocated_ = totals.allocated;
  reserved_ = totals.reserved;
  if (current_ == moments_.size()) return;
  Slot& slot = slots_[current_];
  slot.lowest = std::min(slot.lowest, allocated_);
  slot.highest = std::max(slot.highest, allocated_);
  slot.reserved = std::max(slot.reserved, reserved_);
}

std::uint32_t MomentBook::key_of(const Block& block, CategoryId category) {
  const CallStack& call = block.birth.call;
  const StackId stack = call.forward != StackId{} ? call.forward : call.stack;
  const Packed packed{std::uint64_t{block.module.raw()} << 32 | block.op.raw(),
                      std::uint64_t{stack.raw()} << 8 | category.raw()};
  const auto [found, fresh] =
      key_index_.try_emplace(packed, static_cast<std::uint32_t>(keys_.size()));
  if (fresh) keys_.push_back({block.module, block.op, category, stack});
  return found->second;
}

void MomentBook::book(const Block& block, CategoryId category, std::uint32_t moment, Bytes bytes) {
  if (moment == moments_.size()) return;
  const std::size_t slot = std::min<std::size_t>(category.raw(), category::kMaxCategories - 1);
  slots_[moment].change[slot] += bytes;
  changes_.push_back({home_[moment], key_of(block, category), bytes});
  if (changes_.size() >= compact_at_) compact();
}

void MomentBook::on_alloc(const Now& now, const Block& block) {
  if (block.device == device_) observe(now);
}

void MomentBook::on_free(const Now& now, const Block& block, CategoryId category) {
  if (block.device != device_) return;
  observe(now);
  const std::uint32_t born = moment_at(block.birth.event);
  const std::uint32_t gone = moment_at(now.event);
  if (born == gone) return;  // no moment saw it
  category = known_category(now.dictionary, category);
  book(block, category, born, block.bytes);
  book(block, category, gone, Bytes{} - block.bytes);
}

void MomentBook::on_reserved(const Now& now, DeviceId device) {
  if (device == device_) observe(now);
}

void MomentBook::finish(const Now& now) {
  now.ledger.for_each_live([&](const Block& block) {
    if (block.device != device_) return;
    const CategoryId category =
        known_category(now.dictionary, resolve_category(block, now.context, true));
    book(block, category, moment_at(block.birth.event), block.bytes);
  });
  advance(now.event + 1);
  if (current_ < moments_.size()) slots_[current_].allocated = allocated_;
  compact();
  while (changes_.size() > most_changes_ && can_thin_out()) thin_out();
}

// Adds up changes of one key at one moment.
void MomentBook::compact() {
  std::sort(changes_.begin(), changes_.end(), in_order);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < changes_.size();) {
    AliveChange sum = changes_[i];
    for (++i; i < changes_.size() && !in_order(sum, changes_[i]); ++i) {
      sum.bytes += changes_[i].bytes;
    }
    if (sum.bytes != Bytes{}) changes_[kept++] = sum;
  }
  changes_.resize(kept);
  if (kept > 2 * most_changes_ && can_thin_out()) thin_out();
  compact_at_ = std::max(4 * most_changes_, 2 * changes_.size());
}

bool MomentBook::can_thin_out() const {
  return std::ranges::any_of(moments_, [this](const Moment& moment) {
    return moment.rank >= lowest_rank_ && moment.rank != Moment::kAlways;
  });
}

// Drops the moments of the lowest rank that is left.
void MomentBook::thin_out() {
  std::uint32_t lowest = Moment::kAlways;
  for (const Moment& moment : moments_) {
    if (moment.rank >= lowest_rank_) lowest = std::min(lowest, moment.rank);
  }
  lowest_rank_ = lowest + 1;
  std::uint32_t next = static_cast<std::uint32_t>(moments_.size());  // the last is always kept
  for (std::size_t i = moments_.size(); i-- > 0;) {
    if (moments_[i].rank >= lowest_rank_ || next == moments_.size()) {
      next = static_cast<std::uint32_t>(i);
    }
    home_[i] = next;
  }
  for (AliveChange& change : changes_) change.point = home_[change.point];
  compact();
}

// Events between kept moments in the middle of them, where windows and peaks do not count.
std::uint64_t MomentBook::spacing() const {
  std::vector<std::uint64_t> gaps;
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < moments_.size(); ++i) {
    if (home_[i] != i) continue;
    if (i > 0) gaps.push_back(moments_[i].event - last);
    last = moments_[i].event;
  }
  return gaps.empty() ? 0 : *std::ranges::max_element(gaps);
}

void MomentBook::fill(DeviceReport& out, const Dictionary& dictionary) {
  const std::vector<CategoryId> top = top_categories(dictionary);
  for (const CategoryId id : top) out.categories.push_back(dictionary.category(id).name);
  CategoryArray held{};
  for (std::size_t i = 0; i < moments_.size(); ++i) {
    const Slot& slot = slots_[i];
    add_to_top(held, slot.change, dictionary);
    ReportPoint point{moments_[i].event, slot.time, slot.allocated, slot.lowest, slot.highest,
                      slot.reserved,     {},        home_[i] == i};
    for (const CategoryId id : top) point.by_category.push_back(held[id.raw()]);
    out.points.push_back(std::move(point));
  }
  out.keys = std::move(keys_);
  out.changes = std::move(changes_);
  out.alive_every = spacing();
}

}  // namespace peakline
