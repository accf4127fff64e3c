// Names for things in a recording. Each id is its own type; raw() is the one way out.
#pragma once

#include <compare>
#include <cstdint>

namespace peakline {

template <class Tag, class Rep>
class Id {
 public:
  using rep = Rep;
  constexpr Id() = default;
  constexpr explicit Id(Rep raw) : raw_(raw) {}

  [[nodiscard]] constexpr Rep raw() const noexcept { return raw_; }
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 mistakes the 0 that <=> compares with
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  Rep raw_ = 0;
};

// Index into a table of the recording's Dictionary. 0 is always "none".
using NameId = Id<struct NameTag, std::uint32_t>;
using OpId = Id<struct OpTag, std::uint32_t>;
using ModuleId = Id<struct ModuleTag, std::uint32_t>;
using LineId = Id<struct LineTag, std::uint32_t>;
using StackId = Id<struct StackTag, std::uint32_t>;
// A named part of the program inside its callers, as the Context numbers them; 0 is "none".
using RegionId = Id<struct RegionTag, std::uint32_t>;
// Index into the Dictionary's devices and threads; 0 is the first one.
using DeviceId = Id<struct DeviceTag, std::uint8_t>;
using ThreadId = Id<struct ThreadTag, std::uint16_t>;
// A device's stream as the producer numbers them; 0 is the default stream.
using StreamId = Id<struct StreamTag, std::uint32_t>;
// One allocation, from alloc to free. Never reused within a recording.
using BlockId = Id<struct BlockTag, std::uint64_t>;
// Where the allocator put something; 0 is "not known".
using Address = Id<struct AddressTag, std::uint64_t>;
// See category.h.
using CategoryId = Id<struct CategoryTag, std::uint8_t>;

}  // namespace peakline
