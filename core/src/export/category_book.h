// What each block of a recording turns out to be, known in advance for a second read.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include <peakline/replay.h>

namespace peakline {

// Keeps one byte for each allocation, by its place among all allocations: categories are decided by
// a block's death, and whoever writes in order of time needs them at its birth.
class CategoryBook : public Pass {
 public:
  void on_alloc(const Now&, const Block& block) override {
    live_.insert_or_assign(block.id.raw(), categories_.size());
    categories_.push_back(category::kOther);
  }
  void on_free(const Now&, const Block& block, CategoryId category) override {
    const auto found = live_.find(block.id.raw());
    if (found == live_.end()) return;
    categories_[found->second] = category;
    live_.erase(found);
  }
  void finish(const Now& now) override {
    now.ledger.for_each_live([&](const Block& block) {
      const auto found = live_.find(block.id.raw());
      if (found == live_.end()) return;
      categories_[found->second] = resolve_category(block, now.context, true);
    });
    live_.clear();
  }

  // Of the allocation number `index`, in order of allocation.
  [[nodiscard]] CategoryId at(std::size_t index) const {
    return index < categories_.size() ? categories_[index] : category::kOther;
  }

 private:
  std::unordered_map<std::uint64_t, std::size_t> live_;
  std::vector<CategoryId> categories_;
};

}  // namespace peakline
