#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>

#include <peakline/device_model.h>

namespace peakline {
namespace {

constexpr std::uint64_t kChunk = std::uint64_t{32} << 20;
// Reserved ranges start here and go up; the driver keeps a range of its own at 1 TiB.
constexpr std::uint64_t kReservations = std::uint64_t{0x302000000};
// The driver's own ranges when a program starts: a part of the oldest chunk, and what lies between that
// and the newest.
constexpr std::uint64_t kOldestUsed = std::uint64_t{8} << 20;
constexpr std::uint64_t kBetween = std::uint64_t{64} << 20;
constexpr std::uint64_t kReservationsEnd = std::uint64_t{1} << 56;
constexpr std::uint64_t kDriversOwn = std::uint64_t{1} << 40;
constexpr std::uint64_t kDriversOwnSize = std::uint64_t{64} << 20;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}
constexpr std::uint64_t raw(Bytes bytes) { return static_cast<std::uint64_t>(bytes.raw()); }

// Address space as free ranges, begin to end. Ranges that touch are one.
class AddressSpace {
 public:
  AddressSpace(std::uint64_t begin, std::uint64_t end) { free_.emplace(begin, end); }

  // At the top of the highest range that can hold `size` bytes; nothing when there is none.
  std::optional<std::uint64_t> take_highest(std::uint64_t size) {
    for (auto it = free_.rbegin(); it != free_.rend(); ++it) {
      if (it->second - it->first < size) continue;
      const std::uint64_t begin = it->second - size;
      take(begin, it->second);
      return begin;
    }
    return std::nullopt;
  }
  // At the start of the lowest range that can hold `size` bytes.
  std::optional<std::uint64_t> take_lowest(std::uint64_t size) {
    for (const auto& [begin, end] : free_) {
      if (end - begin < size) continue;
      const std::uint64_t at = begin;
      take(at, at + size);
      return at;
    }
    return std::nullopt;
  }
  // Takes a range that is free.
  void take(std::uint64_t begin, std::uint64_t end) {
    const auto it = std::prev(free_.upper_bound(begin));
    const auto [free_begin, free_end] = *it;
    free_.erase(it);
    if (free_begin < begin) free_.emplace(free_begin, begin);
    if (end < free_end) free_.emplace(end, free_end);
  }
  void give_back(std::uint64_t begin, std::uint64_t end) {
    auto next = free_.upper_bound(begin);
    if (next != free_.end() && next->first == end) {
      end = next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin() && std::prev(next)->second == begin) {
      std::prev(next)->second = end;
    } else {
      free_.emplace_hint(next, begin, end);
    }
  }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;
};

// A range of address space that segments are put into.
struct Chunk {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t largest_gap = 0;
  std::map<std::uint64_t, std::uint64_t> used;  // begin to end

  // The lowest place where `size` bytes are free; `end` when there is none.
  [[nodiscard]] std::uint64_t room_for(std::uint64_t size) const {
    std::uint64_t at = begin;
    for (const auto& [used_begin, used_end] : used) {
      if (used_begin - at >= size) return at;
      at = used_end;
    }
    return end - at >= size ? at : end;
  }
  void measure() {
    std::uint64_t at = begin;
    largest_gap = 0;
    for (const auto& [used_begin, used_end] : used) {
      largest_gap = std::max(largest_gap, used_begin - at);
      at = used_end;
    }
    largest_gap = std::max(largest_gap, end - at);
  }
};

// Chunks by age, and which of them have room for how much.
class Chunks {
 public:
  using Number = std::uint64_t;  // newer chunks have higher ones

  // The newest chunk with a gap of `size` bytes; 0 when there is none.
  [[nodiscard]] Number newest_with_room(std::uint64_t size) const {
    const std::size_t least = std::min((size + kUnit - 1) / kUnit, kClasses);
    Number best = 0;
    for (std::size_t i = least; i < kClasses; ++i) {
      if (!by_gap_[i].empty()) best = std::max(best, *by_gap_[i].rbegin());
    }
    for (auto it = by_gap_[kClasses].rbegin(); it != by_gap_[kClasses].rend() && *it > best; ++it) {
      if (chunks_.at(*it).largest_gap >= size) return *it;
    }
    return best;
  }
  Number add(std::uint64_t begin, std::uint64_t end) {
    chunks_.emplace_hint(chunks_.end(), ++last_, Chunk{begin, end, end - begin, {}});
    by_gap_[class_of(end - begin)].insert(last_);
    return last_;
  }
  [[nodiscard]] const Chunk& operator[](Number number) const { return chunks_.at(number); }
  void put(Number number, std::uint64_t at, std::uint64_t size) {
    change(number, [&](Chunk& chunk) { chunk.used.emplace(at, at + size); });
  }
  void remove(Number number, std::uint64_t at) {
    change(number, [&](Chunk& chunk) { chunk.used.erase(at); });
  }
  void drop(Number number) {
    by_gap_[class_of(chunks_.at(number).largest_gap)].erase(number);
    chunks_.erase(number);
  }

 private:
  static constexpr std::uint64_t kUnit = std::uint64_t{2} << 20;
  static constexpr std::size_t kClasses = kChunk / kUnit;  // the last class: this much and more

  static std::size_t class_of(std::uint64_t gap) {
    return std::min<std::size_t>(gap / kUnit, kClasses);
  }

  template <class Change>
  void change(Number number, Change apply) {
    Chunk& chunk = chunks_.at(number);
    const std::size_t before = class_of(chunk.largest_gap);
    apply(chunk);
    chunk.measure();
    const std::size_t after = class_of(chunk.largest_gap);
    if (before == after) return;
    by_gap_[before].erase(number);
    by_gap_[after].insert(number);
  }

  std::map<Number, Chunk> chunks_;
  std::array<std::set<Number>, kClasses + 1> by_gap_;
  Number last_ = 0;
};

class DriverModel : public DeviceModel {
 public:
  explicit DriverModel(const DriverOptions& options)
      : total_(options.total),
        free_(options.total - options.in_use),
        kept_(options.kept),
        left_(options.most.value_or(options.total)),
        startup_segments_(options.startup_segments),
        space_(kChunk, options.top.raw() / kChunk * kChunk),
        reservations_(kReservations, kReservationsEnd) {
    reservations_.take(kDriversOwn, kDriversOwn + kDriversOwnSize);
    if (options.startup > Bytes{}) take_drivers_own(options.startup);
  }

  std::optional<Address> allocate(Bytes bytes) override {
    if (!map(bytes)) return std::nullopt;
    if (startup_ && ++segments_ > startup_segments_) launched();
    const std::optional<std::uint64_t> at = place(raw(bytes));
    if (!at) unmap(bytes);
    return at ? std::optional(Address(*at)) : std::nullopt;
  }

  void release(Address address, Bytes bytes) override {
    unmap(bytes);
    remove(address.raw());
  }

  Address reserve_addresses(Bytes bytes) override {
    // There is always room: the space is far larger than the devices of one process.
    return Address(reservations_.take_lowest(round_up(raw(bytes), kChunk)).value_or(kChunk));
  }
  void release_addresses(Address address, Bytes bytes) override {
    if (address.raw() < kReservations) return;
    reservations_.give_back(address.raw(), address.raw() + round_up(raw(bytes), kChunk));
  }

  bool map(Bytes bytes) override {
    if (bytes + kept_ > free_ || bytes > left_) return false;
    free_ -= bytes;
    left_ -= bytes;
    return true;
  }
  void unmap(Bytes bytes) override {
    free_ += bytes;
    left_ += bytes;
  }

  void launched() override {
    if (startup_) remove(*startup_);
    startup_.reset();
  }

  void take_own(Bytes bytes) override { place(raw(bytes)); }

  [[nodiscard]] Bytes total() const override { return total_; }
  [[nodiscard]] Bytes free() const override { return free_; }

 private:
  void take_drivers_own(Bytes startup) {
    place(kOldestUsed);
    space_.take_highest(kBetween);
    startup_ = place(raw(startup));
  }

  std::optional<std::uint64_t> place(std::uint64_t size) {
    Chunks::Number number = chunks_.newest_with_room(size);
    if (number == 0) {
      const std::uint64_t length = round_up(size, kChunk);
      const std::optional<std::uint64_t> begin = space_.take_highest(length);
      if (!begin) return std::nullopt;
      number = chunks_.add(*begin, *begin + length);
    }
    const std::uint64_t at = chunks_[number].room_for(size);
    chunks_.put(number, at, size);
    homes_.emplace(at, number);
    return at;
  }

  void remove(std::uint64_t at) {
    const auto home = homes_.find(at);
    if (home == homes_.end()) return;
    const Chunks::Number number = home->second;
    homes_.erase(home);
    chunks_.remove(number, at);
    const Chunk& chunk = chunks_[number];
    if (!chunk.used.empty()) return;
    space_.give_back(chunk.begin, chunk.end);
    chunks_.drop(number);
  }

  Bytes total_;
  Bytes free_;
  Bytes kept_;
  Bytes left_;  // of the most that it gives out
  int startup_segments_;
  std::optional<std::uint64_t> startup_;
  int segments_ = 0;  // counted until the startup range is gone
  AddressSpace space_;
  AddressSpace reservations_;
  Chunks chunks_;
  std::unordered_map<std::uint64_t, Chunks::Number> homes_;  // of segments, by address
};

}  // namespace

std::unique_ptr<DeviceModel> make_driver_model(const DriverOptions& options) {
  return std::make_unique<DriverModel>(options);
}

}  // namespace peakline
