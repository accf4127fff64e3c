// The settings of torch's CUDA caching allocator that change memory, read from the same text as
// torch reads them: PYTORCH_CUDA_ALLOC_CONF, or PYTORCH_ALLOC_CONF.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <peakline/status.h>
#include <peakline/units.h>

namespace peakline {

// A torch release, as far as the allocator's rules depend on it.
struct TorchVersion {
  int major = 2;
  int minor = 13;

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 mistakes the 0 that <=> compares with
  friend constexpr auto operator<=>(const TorchVersion&, const TorchVersion&) = default;
};

// Reads "2.11", "2.13.0+cu130" and the like. Releases 2.11 to 2.15 are supported.
Result<TorchVersion> parse_torch_version(std::string_view text);

// What the allocator was told. The defaults are torch's.
struct AllocatorConfig {
  static constexpr Bytes kUnlimited{std::numeric_limits<std::int64_t>::max()};
  // Rounding is set per power of two from 1 MiB up; the last entry holds for everything above.
  static constexpr std::size_t kRoundupIntervals = 16;

  TorchVersion torch;
  bool expandable_segments = false;
  Bytes max_split_size = kUnlimited;
  Bytes max_non_split_rounding = 20_MiB;
  Bytes large_segment_size = 20_MiB;
  double garbage_collection_threshold = 0.0;  // 0: off
  double memory_fraction = 1.0;               // 1: no limit
  bool reject_over_limit = false;             // throw_on_cudamalloc_oom
  // Addresses for each expandable segment: this share of the device, or these bytes, but never more
  // than the nine eighths that are taken where nothing is set.
  std::optional<double> reserve_fraction;
  std::optional<Bytes> reserve_bytes;
  std::array<std::uint64_t, kRoundupIntervals> roundup_power2_divisions{};  // 0, 1: plain rounding

  // Settings that were read and change no device memory (pinned memory, locks), by name.
  std::vector<std::string> without_effect;
  // The text this came from.
  std::string text;

  // Reads a settings string. Every error names the option, what was given and what is allowed.
  static Result<AllocatorConfig> parse(std::string_view text, TorchVersion torch = {});

  // What was set, without defaults, in one order and spelling: equal texts are equal settings.
  [[nodiscard]] std::string canonical() const;

  // The size of the block that serves a request of `requested` bytes (at least one).
  [[nodiscard]] std::uint64_t round_size(std::uint64_t requested) const noexcept;
  // The size of the segment that is asked from the driver for a block of `rounded` bytes.
  [[nodiscard]] std::uint64_t segment_size(std::uint64_t rounded) const noexcept;
};

// The settings text `base` with the options of `more` in place of its own.
std::string add_settings(std::string_view base, std::string_view more);

// The allocator's fixed sizes.
inline constexpr std::uint64_t kMinBlockSize = 512;
inline constexpr std::uint64_t kSmallSize = std::uint64_t{1} << 20;    // largest small block
inline constexpr std::uint64_t kSmallBuffer = std::uint64_t{2} << 20;  // segments of small blocks
inline constexpr std::uint64_t kMinLargeAlloc = std::uint64_t{10} << 20;  // from here own segments
inline constexpr std::uint64_t kRoundLarge = std::uint64_t{2} << 20;  // which are rounded to this

}  // namespace peakline
