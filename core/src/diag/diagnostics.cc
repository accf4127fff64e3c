#include <algorithm>

#include <peakline/diagnostics.h>

namespace peakline {
namespace {

struct Entry {
  std::string_view name;
  std::string_view sentence;
};

constexpr Entry kEntries[] = {
#define PEAKLINE_LOSS(id, name, sentence) {name, sentence},
#include <peakline/counters.def>
#undef PEAKLINE_LOSS
};

constexpr std::size_t index(Loss loss) { return static_cast<std::size_t>(loss); }

}  // namespace

void Diagnostics::count(Loss loss, std::uint64_t times) noexcept { counts_[index(loss)] += times; }

void Diagnostics::merge(const Diagnostics& other) noexcept {
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
}

std::uint64_t Diagnostics::of(Loss loss) const noexcept { return counts_[index(loss)]; }

bool Diagnostics::empty() const noexcept {
  return std::all_of(counts_.begin(), counts_.end(), [](std::uint64_t n) { return n == 0; });
}

std::vector<std::string> Diagnostics::sentences() const {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] == 0) continue;
    out.push_back(std::to_string(counts_[i]) + " " + std::string(kEntries[i].sentence));
  }
  return out;
}

std::string_view Diagnostics::name(Loss loss) noexcept { return kEntries[index(loss)].name; }

Loss Diagnostics::find(std::string_view name) noexcept {
  for (std::size_t i = 0; i < index(Loss::kCount_); ++i) {
    if (kEntries[i].name == name) return static_cast<Loss>(i);
  }
  return Loss::kCount_;
}

}  // namespace peakline
