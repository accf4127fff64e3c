// Categories as reports show them: those that exist, and the upper one of their two levels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <peakline/category.h>
#include <peakline/dictionary.h>

#include "ledger/timeline.h"

namespace peakline {

// A damaged recording may name a category that it does not define.
inline CategoryId known_category(const Dictionary& dictionary, CategoryId id) {
  return id.raw() < dictionary.category_count() ? id : category::kOther;
}

inline std::vector<CategoryId> top_categories(const Dictionary& dictionary) {
  std::vector<CategoryId> out;
  for (std::size_t c = 0; c < dictionary.category_count(); ++c) {
    const CategoryId id(static_cast<std::uint8_t>(c));
    if (dictionary.top_level(id) == id) out.push_back(id);
  }
  return out;
}

// Adds each of `bytes` to its top-level category.
inline void add_to_top(CategoryArray& held, const CategoryArray& bytes,
                       const Dictionary& dictionary) {
  for (std::size_t c = 0; c < dictionary.category_count(); ++c) {
    const CategoryId id(static_cast<std::uint8_t>(c));
    held[dictionary.top_level(id).raw()] += bytes[c];
  }
}

}  // namespace peakline
