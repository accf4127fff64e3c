// The numbers that a recording file is made of. docs/trace-format.md says what they mean; the two
// change together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <variant>

#include <peakline/event.h>

namespace peakline::trace {

// --- The file. ---

// Not text, so that no tool takes it for text; and damaged by every conversion of line ends.
inline constexpr std::array<std::uint8_t, 8> kMagic{0x89, 'P', 'E', 'A', 'K', '\r', '\n', 0x1a};
inline constexpr std::uint16_t kMajorVersion = 1;
inline constexpr std::uint16_t kMinorVersion = 2;
inline constexpr std::size_t kFileHeaderBytes = 16;  // magic, major, minor, checksum

// --- Chunks. ---

enum class ChunkType : std::uint8_t { kInfo = 1, kEvents = 2, kTrailer = 3 };

inline constexpr std::uint8_t kCompressed = 0x01;  // flag: the payload is one zstd frame

struct ChunkHeader {
  std::uint8_t type = 0;
  std::uint8_t flags = 0;
  std::uint32_t raw_bytes = 0;     // of the payload after decompression
  std::uint32_t stored_bytes = 0;  // of the payload in the file
  std::uint32_t payload_crc = 0;   // of the payload as stored
};
inline constexpr std::size_t kChunkHeaderBytes = 20;  // the above, two zeros, and its own checksum

// Readers refuse more, so that a length in a damaged or hostile file cannot take all memory.
inline constexpr std::uint32_t kMaxChunkBytes = std::uint32_t{16} << 20;
inline constexpr std::size_t kMaxTextBytes = std::size_t{64} << 10;  // of one word; longer is cut

enum class EndReason : std::uint8_t { kClosed = 0, kWriteFailed = 1 };

// --- Records of an events chunk. ---

// A tag byte is a kind in the low five bits and three flags. Kinds below kFirstDefinition are
// events: their number is the index of their body in EventBody.
inline constexpr std::uint8_t kKindMask = 0x1f;
inline constexpr std::uint8_t kTimeFlag = 0x20;  // time moved: a delta is in the times column
inline constexpr std::uint8_t kFlagA = 0x40;     // what A and B say depends on the kind
inline constexpr std::uint8_t kFlagB = 0x80;
inline constexpr int kPassShift = 6;  // A and B together hold a ModulePass or a Phase

template <class Body, std::size_t kIndex = 0>
constexpr std::uint8_t kind_of() {
  if constexpr (std::is_same_v<Body, std::variant_alternative_t<kIndex, EventBody>>) {
    return kIndex;
  } else {
    return kind_of<Body, kIndex + 1>();
  }
}
template <class Body>
inline constexpr std::uint8_t kKindOf = kind_of<Body>();

inline constexpr std::uint8_t kFirstDefinition = 21;
enum class RecordKind : std::uint8_t {
  kDefineName = kFirstDefinition,
  kDefineOp,
  kDefineModule,
  kDefineDevice,
  kDefineThread,
  kDefineCategory,
  kThread,          // the following events are on this thread
  kFirstExtension,  // from here on a length follows, so that old readers can skip new records
  kSureness = kFirstExtension,  // an event, from version 1.1 on
  kCallStack,                   // an event, from version 1.2 on
  kLaterWord,                   // behind the length, a LaterWord says of which table
  kLaterEvent,                  // behind the length, a LaterEvent says of which kind
};
enum class LaterWord : std::uint8_t { kLine = 0, kStack = 1 };
enum class LaterEvent : std::uint8_t { kRegionBegin = 0, kRegionEnd = 1 };
inline constexpr std::uint8_t kLibraryLine = 0x01;  // flag of a line
static_assert(std::variant_size_v<EventBody> == kFirstDefinition + 4, "an event without a kind");

// Events of later kinds are in no count of events: a reader that skips them must find as many.
inline bool is_counted(const EventBody& body) { return body.index() < kFirstDefinition; }

// What an Alloc's extra byte (flag A) says.
namespace alloc_extra {
inline constexpr std::uint8_t kRequested = 0x01;         // differs from bytes
inline constexpr std::uint8_t kBlock = 0x02;             // is not the newest plus one
inline constexpr std::uint8_t kStream = 0x04;            // differs from the last one's
inline constexpr std::uint8_t kDevice = 0x08;            // likewise
inline constexpr std::uint8_t kNoAddress = 0x10;         // the address is 0
inline constexpr std::uint8_t kUnalignedAddress = 0x20;  // not a multiple of kAddressUnit away
inline constexpr std::uint8_t kAll = 0x3f;
}  // namespace alloc_extra

inline constexpr std::uint64_t kSizeUnit = 512;
inline constexpr std::uint64_t kAddressUnit = 64;

// The columns of an events chunk. Clocks and addresses are noise beside the rest, which repeats
// with every layer and step: kept apart, the rest compresses far better.
enum Column : std::size_t { kRecords, kTimes, kAddresses, kColumns };
inline constexpr std::uint64_t kMaxColumns = 64;  // a later version may have more

// The longest event (an Alloc with all extras) is shorter than this in every column.
inline constexpr std::size_t kMaxEventBytes = 96;

// What deltas are relative to. Every chunk starts with a fresh one, so that a chunk needs none of
// the chunks before it, other than for the words they define.
struct DeltaState {
  std::uint64_t time = 0;
  std::uint64_t newest = 0;         // the block of the last Alloc
  std::uint64_t freed = 0;          // the block of the last Free
  std::uint64_t labelled = 0;       // the block of the last Label
  std::uint64_t address_guess = 0;  // right behind the last Alloc
  std::uint32_t stream = 0;
  std::uint16_t thread = 0;
  std::uint8_t device = 0;

  DeltaState() = default;
  DeltaState(std::uint64_t base_time, std::uint64_t base_block)
      : time(base_time), newest(base_block), freed(base_block), labelled(base_block) {}

  void placed(std::uint64_t address, std::uint64_t bytes) noexcept {
    address_guess = address + (bytes + kSizeUnit - 1) / kSizeUnit * kSizeUnit;
  }
};

}  // namespace peakline::trace
