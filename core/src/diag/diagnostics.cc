#include <algorithm>

#include <peakline/counts.h>
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

// The sentence with the words for `count` out of each "[one|many]".
std::string sentence_for(std::uint64_t count, std::string_view sentence) {
  std::string out = grouped(count) + " ";
  for (std::size_t open = 0; (open = sentence.find('[')) != std::string_view::npos;) {
    const std::size_t bar = sentence.find('|', open);
    const std::size_t close = sentence.find(']', bar);
    const std::size_t first = count == 1 ? open : bar;
    out += sentence.substr(0, open);
    out += sentence.substr(first + 1, (count == 1 ? bar : close) - first - 1);
    sentence.remove_prefix(close + 1);
  }
  return out.append(sentence);
}

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
    out.push_back(sentence_for(counts_[i], kEntries[i].sentence));
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
