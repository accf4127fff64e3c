#include <algorithm>
#include <list>
#include <map>

#include <peakline/device_model.h>

namespace peakline {
namespace {

constexpr std::uint64_t kChunk = std::uint64_t{32} << 20;
// Reserved ranges start here and go up; the driver keeps a range of its own at 1 TiB.
constexpr std::uint64_t kReservations = std::uint64_t{0x302000000};
constexpr std::uint64_t kDriversOwn = std::uint64_t{1} << 40;
constexpr std::uint64_t kDriversOwnSize = std::uint64_t{64} << 20;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}
constexpr std::uint64_t raw(Bytes bytes) { return static_cast<std::uint64_t>(bytes.raw()); }

// Ranges of taken addresses, begin to end, that never touch each other.
class Holes {
 public:
  // The highest place below `top` where `size` bytes are free; nothing when there is none.
  std::optional<std::uint64_t> take_highest(std::uint64_t top, std::uint64_t size) {
    std::uint64_t end = top;
    for (auto it = taken_.rbegin(); it != taken_.rend(); ++it) {
      if (end - it->second >= size) break;
      end = it->first;
    }
    if (end < size) return std::nullopt;
    const std::uint64_t begin = end - size;
    taken_.emplace(begin, end);
    return begin;
  }
  // The lowest place from `from` on.
  std::uint64_t take_lowest(std::uint64_t from, std::uint64_t size) {
    std::uint64_t begin = from;
    for (const auto& [taken_begin, taken_end] : taken_) {
      if (taken_end <= begin) continue;
      if (taken_begin >= begin + size) break;
      begin = taken_end;
    }
    taken_.emplace(begin, begin + size);
    return begin;
  }
  void take(std::uint64_t begin, std::uint64_t end) { taken_.emplace(begin, end); }
  void give_back(std::uint64_t begin) { taken_.erase(begin); }

 private:
  std::map<std::uint64_t, std::uint64_t> taken_;
};

// A range of address space that segments are put into.
struct Chunk {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
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
};

class DriverModel : public DeviceModel {
 public:
  explicit DriverModel(const DriverOptions& options)
      : top_(options.top.raw() / kChunk * kChunk),
        total_(options.total),
        free_(options.total - options.in_use),
        kept_(options.kept) {
    reservations_.take(kDriversOwn, kDriversOwn + kDriversOwnSize);
  }

  std::optional<Address> allocate(Bytes bytes) override {
    if (!map(bytes)) return std::nullopt;
    const std::optional<std::uint64_t> at = place(raw(bytes));
    if (!at) unmap(bytes);
    return at ? std::optional(Address(*at)) : std::nullopt;
  }

  void release(Address address, Bytes bytes) override {
    unmap(bytes);
    const auto home = homes_.find(address.raw());
    if (home == homes_.end()) return;
    const auto chunk = home->second;
    homes_.erase(home);
    chunk->used.erase(address.raw());
    if (!chunk->used.empty()) return;
    chunks_space_.give_back(chunk->begin);
    chunks_.erase(chunk);
  }

  Address reserve_addresses(Bytes bytes) override {
    return Address(reservations_.take_lowest(kReservations, round_up(raw(bytes), kChunk)));
  }
  void release_addresses(Address address, Bytes) override {
    reservations_.give_back(address.raw());
  }

  bool map(Bytes bytes) override {
    if (bytes + kept_ > free_) return false;
    free_ -= bytes;
    return true;
  }
  void unmap(Bytes bytes) override { free_ += bytes; }

  [[nodiscard]] Bytes total() const override { return total_; }
  [[nodiscard]] Bytes free() const override { return free_; }

 private:
  std::optional<std::uint64_t> place(std::uint64_t size) {
    for (auto chunk = chunks_.begin(); chunk != chunks_.end(); ++chunk) {
      const std::uint64_t at = chunk->room_for(size);
      if (at != chunk->end) return put(chunk, at, size);
    }
    Chunk made;
    const std::uint64_t length = round_up(size, kChunk);
    const std::optional<std::uint64_t> begin = chunks_space_.take_highest(top_, length);
    if (!begin) return std::nullopt;
    made.begin = *begin;
    made.end = made.begin + length;
    chunks_.push_front(std::move(made));
    return put(chunks_.begin(), chunks_.begin()->begin, size);
  }

  std::uint64_t put(std::list<Chunk>::iterator chunk, std::uint64_t at, std::uint64_t size) {
    chunk->used.emplace(at, at + size);
    homes_.emplace(at, chunk);
    return at;
  }

  std::uint64_t top_;
  Bytes total_;
  Bytes free_;
  Bytes kept_;
  Holes chunks_space_;
  Holes reservations_;
  std::list<Chunk> chunks_;  // newest first
  std::map<std::uint64_t, std::list<Chunk>::iterator> homes_;
};

}  // namespace

std::unique_ptr<DeviceModel> make_driver_model(const DriverOptions& options) {
  return std::make_unique<DriverModel>(options);
}

}  // namespace peakline
