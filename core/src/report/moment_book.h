// What one device held at each of a list of moments.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include <peakline/replay.h>
#include <peakline/report.h>

#include "ledger/timeline.h"
#include "report/moments.h"

namespace peakline {

// Totals and categories at every moment; who holds what at as many of them as `most_changes` allows.
// Memory does not grow with the recording: a block is booked when it dies, as one change where it
// was first seen and one where it was first missing, and changes of the same kind are added up.
// Too many of them thin out the moments (see Moment::rank), which merges them further.
class MomentBook : public Pass {
 public:
  // `moments` is what choose_moments() gives.
  MomentBook(DeviceId device, std::vector<Moment> moments, std::size_t most_changes);

  // Before the replay sees the event: moments get its time.
  void on_event(std::uint64_t event, TimeNs time) {
    if (next_timed_ < moments_.size() && moments_[next_timed_].event == event) {
      slots_[next_timed_++].time = time;
    }
  }
  void on_alloc(const Now& now, const Block& block) override;
  void on_free(const Now& now, const Block& block, CategoryId category) override;
  void on_reserved(const Now& now, DeviceId device) override;
  void finish(const Now& now) override;

  // Call once, after finish().
  void fill(DeviceReport& out, const Dictionary& dictionary);

 private:
  struct Slot {
    TimeNs time;
    Bytes allocated;
    Bytes lowest;
    Bytes highest;
    Bytes reserved;
    CategoryArray change{};
  };

  // The fields of an AliveKey. Words are limited (Dictionary::kMaxWords), so that they fit.
  struct Packed {
    std::uint64_t who;
    std::uint64_t where;
    bool operator==(const Packed&) const = default;
  };
  struct PackedHash {
    std::size_t operator()(const Packed& key) const noexcept {
      const std::uint64_t mixed = (key.who ^ key.where << 20) * 0x9E3779B97F4A7C15U;
      return static_cast<std::size_t>(mixed ^ mixed >> 32);
    }
  };

  // The first moment at or after `event`.
  [[nodiscard]] std::uint32_t moment_at(std::uint64_t event) const;
  void advance(std::uint64_t event);
  void observe(const Now& now);
  void book(const Block& block, CategoryId category, std::uint32_t moment, Bytes bytes);
  std::uint32_t key_of(const Block& block, CategoryId category);
  void compact();
  [[nodiscard]] bool can_thin_out() const;
  void thin_out();
  [[nodiscard]] std::uint64_t spacing() const;

  DeviceId device_;
  std::vector<Moment> moments_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> home_;  // by moment: the first kept one at or after it
  std::size_t next_timed_ = 0;
  std::size_t current_ = 0;  // the first moment at or after the last event
  Bytes allocated_;
  Bytes reserved_;
  std::unordered_map<Packed, std::uint32_t, PackedHash> key_index_;
  std::vector<AliveKey> keys_;
  std::vector<AliveChange> changes_;
  std::size_t most_changes_;
  std::size_t compact_at_;
  std::uint32_t lowest_rank_ = 0;  // of the moments that are kept
};

}  // namespace peakline
