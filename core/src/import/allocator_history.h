// Entries of torch's memory history as events.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <peakline/allocator_config.h>
#include <peakline/event_sink.h>
#include <peakline/import.h>

namespace peakline {

// One entry, whatever file it comes from.
struct HistoryEntry {
  std::string_view action;
  std::uint64_t address = 0;
  std::int64_t size = 0;
  StreamId stream;
  TimeNs time;
  std::string_view op;  // where the program was; may be empty
  StackId stack = {};   // likewise, as a stack
};

// Turns the entries of one device into events, in order. Not thread-safe.
class AllocatorHistory {
 public:
  // `sink` outlives this. `settings` are those of the allocator, as far as they are known.
  AllocatorHistory(EventSink& sink, DeviceId device, const AllocatorConfig& settings,
                   bool may_begin_late);

  // What is wrong with an entry, without saying where.
  Status on(const HistoryEntry& entry);
  // A block that was alive when the history began.
  Status already_alive(std::uint64_t address, std::int64_t size, StreamId stream);
  // The history is over.
  Status finish();

  [[nodiscard]] const ImportedCounts& counts() const noexcept { return counts_; }
  [[nodiscard]] bool is_live(std::uint64_t address) const { return live_.contains(address); }
  static bool knows(std::string_view action) noexcept;

 private:
  struct Live {
    BlockId block;
    std::uint64_t asked_end = 0;  // what was asked for, rounded
    std::uint64_t end = 0;        // with the rest that was not split off
  };
  struct Segment {
    std::uint64_t end = 0;
    std::uint64_t blocks = 0;  // in use: alive, or waiting for other streams
    bool expands = false;      // mapped: a block may go on in the next one
  };
  // Segments that were given back, until it is known what for.
  struct GivenBack {
    std::string place;           // where the program was
    bool told = false;           // the history says that the cache was emptied
    bool is_over = false;        // other entries followed
    bool some_was_kept = false;  // a free segment: then the allocator collected garbage
    bool took_another = false;   // a new segment followed
  };

  Status alloc(const HistoryEntry& entry);
  // What a request of `size` bytes at `address` counts for.
  [[nodiscard]] std::uint64_t block_bytes(std::uint64_t address, std::int64_t size) const;
  [[nodiscard]] std::uint64_t rounded(std::int64_t size) const;
  // Where the free piece that begins at `address` ends; `address` where that is not known.
  [[nodiscard]] std::uint64_t free_until(std::uint64_t address) const;
  Status free_requested(const HistoryEntry& entry);
  Status free_completed(const HistoryEntry& entry);
  Status segment(const HistoryEntry& entry, bool taken);
  Status judge(const HistoryEntry& entry);
  // The rest behind this block was split off after all: somebody else is there.
  Status take_back_rest(std::uint64_t address, Live& live);
  void count_block(std::uint64_t address, bool begins);
  // Writes the free that was held back to see whether its block had to wait.
  Status settle(bool waits);
  Status write(const EventBody& body, std::string_view op = {});

  EventSink& sink_;
  DeviceId device_;
  AllocatorConfig settings_;
  bool may_begin_late_;  // frees of blocks that were never seen are then no error
  TimeNs now_;
  std::uint64_t next_block_ = 1;
  std::map<std::uint64_t, Live> live_;                        // by address
  std::map<std::uint64_t, BlockId> waiting_;                  // freed, not completed, by address
  std::optional<std::pair<std::uint64_t, BlockId>> pending_;  // a free to be settled
  std::map<std::uint64_t, Segment> segments_;                 // by address
  std::optional<GivenBack> given_back_;
  ImportedCounts counts_;
};

}  // namespace peakline
