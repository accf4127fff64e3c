#include "merge_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace peakline::cli {
namespace {

std::string name_of(const RankUse& use) {
  return use.rank < 0 ? shorten(printable(use.file), 24) : "rank " + std::to_string(use.rank);
}

std::string spread(const RankMerge& merge, const Paint& paint) {
  Table table({"", "Peak allocated", "Peak reserved", "beside the mean"});
  const auto add = [&](const char* what, const RankUse& use) {
    table.add({std::string(what) + ", " + name_of(use), format_size(use.peak_allocated),
               dash_or_size(use.peak_reserved), signed_size(use.peak_allocated - merge.mean())});
  };
  add("Highest", *merge.worst());
  table.add({"Mean", format_size(merge.mean()), "", ""});
  add("Lowest", *merge.lowest());
  return table.render(paint);
}

std::string where(const RankUse& use) {
  std::string text = fmt::format("Peak of {}: step {}, {}\n", name_of(use), use.peak_step,
                                 use.peak_phase.empty() ? "no phase" : use.peak_phase);
  if (!use.peak_op.empty()) text += "  " + shorten(printable(use.peak_op), kColumns - 2) + "\n";
  if (!use.peak_module.empty()) {
    text += "  in " + shorten(printable(use.peak_module), kColumns - 5) + "\n";
  }
  return text;
}

std::string differences(const std::vector<Difference>& rows, std::vector<std::string> header,
                        std::size_t top, const Paint& paint) {
  if (rows.empty()) return "";
  Table table(std::move(header));
  for (std::size_t i = 0; i < std::min(top, rows.size()); ++i) {
    const Difference& row = rows[i];
    table.add({"  " + printable(row.name), format_size(row.worst), format_size(row.other),
               signed_size(row.worst - row.other)});
  }
  return "\n" + table.render(paint);
}

}  // namespace

std::string merge_text(const RankMerge& merge, std::size_t top, const Paint& paint) {
  const std::uint64_t all =
      std::max<std::uint64_t>(merge.count(), static_cast<std::uint64_t>(merge.world_size()));
  std::string text = fmt::format("{} of {}", grouped(merge.count()), counted(all, "rank"));
  if (merge.out_of_memory() > 0) {
    text += fmt::format(", {} ran out of memory", grouped(merge.out_of_memory()));
  }
  text += "\n\n" + spread(merge, paint) + "\n" + where(*merge.worst());
  const std::vector<Difference> categories = merge.by_category();
  text += differences(categories, {"Why: by category", "highest", "mean", "more"},
                      categories.size(), paint);
  text +=
      differences(merge.by_module(), {"Why: by module", "highest", "lowest", "more"}, top, paint);
  if (categories.empty()) text += "\nAll ranks hold the same at their peaks.\n";
  return text;
}

}  // namespace peakline::cli
