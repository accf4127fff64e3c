// The payload of an events chunk becomes events and words again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <peakline/diagnostics.h>
#include <peakline/dictionary.h>
#include <peakline/event.h>
#include <peakline/status.h>

#include "base/coding.h"
#include "trace/format.h"

namespace peakline::trace {

// Decodes one chunk at a time, batch by batch. Bytes are not trusted: what is malformed is an
// error, told without the file's name. Not thread-safe.
class EventDecoder {
 public:
  // Both outlive the decoder: words go into the first, skipped records are counted in the second.
  EventDecoder(Dictionary& dictionary, Diagnostics& diagnostics)
      : dictionary_(&dictionary), diagnostics_(&diagnostics) {}

  // Begins a chunk. `payload` stays valid until the chunk is done, and kMaxEventBytes readable
  // bytes follow it.
  Status start(std::span<const std::uint8_t> payload);
  // Fills `events` from the front and says how many; 0 when the chunk is done.
  Result<std::size_t> decode(std::span<Event> events);
  // How many of the last batch are in the file's counts (is_counted).
  [[nodiscard]] std::size_t counted() const noexcept { return counted_; }

 private:
  struct Cursor {
    const std::uint8_t* at = nullptr;
    const std::uint8_t* end = nullptr;
  };
  struct Fields;
  struct Definition {
    std::uint64_t number = 0;  // a parent, or a device's memory
    std::string_view text;
    std::string_view second;
  };

  [[gnu::noinline]] Status other_record(const std::uint8_t*& at, std::uint8_t tag);
  Status define(const std::uint8_t*& at, RecordKind kind);
  bool add_word(RecordKind kind, const Definition& word);
  Status define_later(const std::uint8_t*& at);
  [[nodiscard]] bool add_later_word(LaterWord table, coding::ByteReader& in);
  [[gnu::noinline]] Status finish() const;
  [[nodiscard, gnu::noinline]] Status malformed(const std::uint8_t* at) const;

  Dictionary* dictionary_;
  Diagnostics* diagnostics_;
  const std::uint8_t* begin_ = nullptr;
  std::array<Cursor, kColumns> columns_;
  std::uint64_t events_left_ = 0;  // that the chunk promises
  std::size_t counted_ = 0;
  DeltaState state_;
};

}  // namespace peakline::trace
