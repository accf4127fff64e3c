// What was lost, guessed or impossible, by name: never fatal, never silent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace peakline {

// Every kind of loss, from counters.def.
enum class Loss : std::uint8_t {
#define PEAKLINE_LOSS(id, name, sentence) id,
#include <peakline/counters.def>
#undef PEAKLINE_LOSS
  kCount_,
};

// Counts losses. Cheap to copy and to merge; not thread-safe.
class Diagnostics {
 public:
  void count(Loss loss, std::uint64_t times = 1) noexcept;
  void merge(const Diagnostics& other) noexcept;
  [[nodiscard]] std::uint64_t of(Loss loss) const noexcept;
  [[nodiscard]] bool empty() const noexcept;
  // One sentence per kind that happened, in the order of counters.def.
  [[nodiscard]] std::vector<std::string> sentences() const;

  [[nodiscard]] static std::string_view name(Loss loss) noexcept;
  // The kind with this name, or kCount_ when there is none.
  [[nodiscard]] static Loss find(std::string_view name) noexcept;

 private:
  std::array<std::uint64_t, static_cast<std::size_t>(Loss::kCount_)> counts_{};
};

}  // namespace peakline
