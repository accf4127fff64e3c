// torch's caching allocator written down as plainly as possible: lists that are searched from one
// end to the other, and totals that are summed when asked. Slow, and easy to check against the
// rules in docs/allocator.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include <peakline/allocator.h>

namespace peakline::testing {

class NaiveAllocator {
 public:
  struct Piece {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t requested = 0;
    bool allocated = false;
    std::vector<std::uint32_t> waits_for;
    bool waiting = false;
    std::uint64_t freed_at = 0;  // search number, for the age
    std::uint64_t number = 0;    // in the order in which pieces are made
    [[nodiscard]] bool free() const { return !allocated && !waiting; }
  };
  struct Segment {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint32_t stream = 0;
    bool small = false;
    std::uint64_t number = 0;  // in the order in which segments are taken
    std::list<Piece> pieces;
    [[nodiscard]] bool whole() const { return pieces.size() == 1; }
  };

  NaiveAllocator(const AllocatorConfig& config, DeviceModel& device)
      : config_(config), device_(device) {}

  void set_limit(std::optional<Bytes> limit) { limit_ = limit; }

  std::uint64_t allocate(std::uint64_t requested, std::uint32_t stream) {
    const std::uint64_t size = config_.round_size(requested);
    const bool small = size <= kSmallSize;
    auto [segment, piece] = best_fit(size, small, stream);
    if (segment == nullptr) {
      if (collects()) collect();
      segment = take_segment(size, small, stream);
      if (segment == nullptr && release_oversize(size, small, stream)) {
        segment = take_segment(size, small, stream);
      }
      if (segment == nullptr) {
        empty_cache();
        ++retries;
        segment = take_segment(size, small, stream);
      }
      if (segment == nullptr) return ++ooms, 0;
      piece = segment->pieces.begin();
    }
    const std::uint64_t rest = piece->size - size;
    const bool splits = small ? rest >= kMinBlockSize : size < max_split() && rest > kSmallSize;
    if (splits) {
      Piece tail = *piece;
      tail.address += size;
      tail.size = rest;
      tail.freed_at = searches_[small];
      piece->size = size;
      segment->pieces.insert(std::next(piece), tail);
      piece->number = ++pieces_made_;  // the front is the new one
    }
    piece->allocated = true;
    piece->requested = requested;
    return piece->address;
  }

  bool free(std::uint64_t address) {
    auto [segment, piece] = find(address);
    if (segment == nullptr || !piece->allocated) return false;
    piece->allocated = false;
    piece->waiting = !piece->waits_for.empty();
    if (!piece->waiting) settle(*segment, piece);
    return true;
  }

  void record_stream(std::uint64_t address, std::uint32_t stream) {
    auto [segment, piece] = find(address);
    if (segment == nullptr || !piece->allocated || segment->stream == stream) return;
    piece->waits_for.push_back(stream);
  }

  void complete_free(std::uint64_t address) {
    auto [segment, piece] = find(address);
    if (segment == nullptr || !piece->waiting) return;
    piece->waiting = false;
    piece->waits_for.clear();
    settle(*segment, piece);
  }

  void empty_cache() {
    for (Segment& segment : segments_) {
      for (auto piece = segment.pieces.begin(); piece != segment.pieces.end(); ++piece) {
        if (!piece->waiting) continue;
        piece->waiting = false;
        piece->waits_for.clear();
        piece = settle(segment, piece);
      }
    }
    release_if([](const Segment& s) { return s.whole() && s.pieces.front().free(); });
  }

  [[nodiscard]] std::uint64_t reserved() const {
    std::uint64_t sum = 0;
    for (const Segment& segment : segments_) sum += segment.size;
    return sum;
  }
  // Sums over pieces for which `take` holds.
  template <class Take, class Amount>
  [[nodiscard]] std::uint64_t sum(Take take, Amount amount) const {
    std::uint64_t total = 0;
    for (const Segment& segment : segments_) {
      for (const Piece& piece : segment.pieces) {
        if (take(segment, piece)) total += amount(piece);
      }
    }
    return total;
  }
  [[nodiscard]] const std::list<Segment>& segments() const { return segments_; }

  std::uint64_t retries = 0;
  std::uint64_t ooms = 0;

 private:
  using Place = std::pair<Segment*, std::list<Piece>::iterator>;

  [[nodiscard]] std::uint64_t max_split() const {
    return static_cast<std::uint64_t>(config_.max_split_size.raw());
  }
  [[nodiscard]] bool collects() const {
    return limit_.has_value() && config_.garbage_collection_threshold > 0.0;
  }

  Place find(std::uint64_t address) {
    for (Segment& segment : segments_) {
      for (auto piece = segment.pieces.begin(); piece != segment.pieces.end(); ++piece) {
        if (piece->address == address) return {&segment, piece};
      }
    }
    return {nullptr, {}};
  }

  // What torch orders free blocks of a stream by.
  [[nodiscard]] std::tuple<std::uint64_t, std::uint64_t, std::uint64_t> rank(
      const Segment& segment, const Piece& piece) const {
    if (config_.torch < TorchVersion{2, 12}) return {piece.size, 0, piece.address};
    if (config_.torch < TorchVersion{2, 13}) return {piece.size, piece.number, 0};
    return {piece.size, segment.number, piece.address};
  }

  Place best_fit(std::uint64_t size, bool small, std::uint32_t stream) {
    if (collects()) ++searches_[small];
    Place best{nullptr, {}};
    for (Segment& segment : segments_) {
      if (segment.small != small || segment.stream != stream) continue;
      for (auto piece = segment.pieces.begin(); piece != segment.pieces.end(); ++piece) {
        if (!piece->free() || piece->size < size) continue;
        if (best.first == nullptr || rank(segment, *piece) < rank(*best.first, *best.second)) {
          best = {&segment, piece};
        }
      }
    }
    if (best.first == nullptr) return best;
    const bool too_large =
        size < max_split()
            ? best.second->size >= max_split()
            : best.second->size >=
                  size + static_cast<std::uint64_t>(config_.max_non_split_rounding.raw());
    return too_large ? Place{nullptr, {}} : best;
  }

  Segment* take_segment(std::uint64_t size, bool small, std::uint32_t stream) {
    const std::uint64_t bytes = config_.segment_size(size);
    if (limit_ && reserved() + bytes > static_cast<std::uint64_t>(limit_->raw())) return nullptr;
    const auto address = device_.allocate(Bytes(static_cast<std::int64_t>(bytes)));
    if (!address) return nullptr;
    Segment segment;
    segment.address = address->raw();
    segment.size = bytes;
    segment.stream = stream;
    segment.small = small;
    segment.number = ++segments_taken_;
    Piece whole;
    whole.number = ++pieces_made_;
    whole.address = segment.address;
    whole.size = bytes;
    segment.pieces.push_back(whole);
    segments_.push_back(std::move(segment));
    return &segments_.back();
  }

  // Joins a piece that became free with free neighbours; where it is now.
  std::list<Piece>::iterator settle(Segment& segment, std::list<Piece>::iterator piece) {
    if (piece != segment.pieces.begin() && std::prev(piece)->free()) {
      piece->address = std::prev(piece)->address;
      piece->size += std::prev(piece)->size;
      segment.pieces.erase(std::prev(piece));
    }
    if (std::next(piece) != segment.pieces.end() && std::next(piece)->free()) {
      piece->size += std::next(piece)->size;
      segment.pieces.erase(std::next(piece));
    }
    piece->freed_at = searches_[segment.small];
    return piece;
  }

  template <class Condition>
  std::uint64_t release_if(Condition condition) {
    std::uint64_t bytes = 0;
    for (auto it = segments_.begin(); it != segments_.end();) {
      if (!condition(*it)) {
        ++it;
        continue;
      }
      device_.release(Address(it->address), Bytes(static_cast<std::int64_t>(it->size)));
      bytes += it->size;
      it = segments_.erase(it);
    }
    return bytes;
  }

  void collect() {
    const auto threshold = static_cast<std::uint64_t>(config_.garbage_collection_threshold *
                                                      static_cast<double>(limit_->raw()));
    if (reserved() <= threshold) return;
    const std::uint64_t target = reserved() - threshold;
    std::uint64_t reclaimed = 0;
    const auto can_go = [](const Segment& s) {
      return !s.small && s.whole() && s.pieces.front().free();
    };
    const auto age = [&](const Segment& s) { return searches_[false] - s.pieces.front().freed_at; };
    for (;;) {
      double ages = 0;
      double count = 0;
      for (const Segment& s : segments_) {
        if (can_go(s)) ages += static_cast<double>(age(s)), ++count;
      }
      if (reclaimed >= target || count == 0) return;
      const double average = ages / count;
      const std::uint64_t got = release_if(
          [&](const Segment& s) { return can_go(s) && static_cast<double>(age(s)) >= average; });
      if (got == 0) return;
      reclaimed += got;
    }
  }

  bool release_oversize(std::uint64_t size, bool small, std::uint32_t stream) {
    if (config_.max_split_size == AllocatorConfig::kUnlimited) return false;
    const std::uint64_t wanted = std::max(size, max_split());
    std::vector<Segment*> candidates;
    for (Segment& s : segments_) {
      if (s.small == small && s.stream == stream && s.whole() && s.pieces.front().free() &&
          s.size >= max_split()) {
        candidates.push_back(&s);
      }
    }
    std::ranges::sort(candidates, {}, [this](Segment* s) { return rank(*s, s->pieces.front()); });
    std::vector<std::uint64_t> go;
    std::uint64_t total = 0;
    const auto enough =
        std::ranges::find_if(candidates, [&](Segment* s) { return s->size >= wanted; });
    if (enough != candidates.end()) {
      go.push_back((*enough)->address);
      total = wanted;
    } else {
      for (auto it = candidates.rbegin(); it != candidates.rend() && total < wanted; ++it) {
        go.push_back((*it)->address);
        total += (*it)->size;
      }
    }
    release_if([&](const Segment& s) { return std::ranges::find(go, s.address) != go.end(); });
    return total >= wanted;
  }

  AllocatorConfig config_;
  DeviceModel& device_;
  std::optional<Bytes> limit_;
  std::list<Segment> segments_;
  std::uint64_t segments_taken_ = 0;
  std::uint64_t pieces_made_ = 0;
  std::map<bool, std::uint64_t> searches_;  // by small
};

}  // namespace peakline::testing
