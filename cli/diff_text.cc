#include "diff_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>

namespace peakline::cli {
namespace {

std::string row_name(const Change& change) {
  const std::string name = printable(change.name);
  return change.members > 1 ? fmt::format("{} ({} modules)", name, grouped(change.members)) : name;
}

// `is_line`: of "model.py:12 forward: text" only the place stands beside the numbers, as in `show`.
std::string table(std::string_view title, const std::vector<Change>& rows, std::size_t top,
                  const Paint& paint, bool is_line = false) {
  if (rows.empty()) return "";
  Table table({std::string(title), "Before", "After", "Change"});
  for (std::size_t i = 0; i < std::min(top, rows.size()); ++i) {
    const std::string name = row_name(rows[i]);
    const std::size_t end = is_line ? std::min(name.find(' '), name.size()) : name.size();
    table.add({name.substr(0, end), dash_or_size(rows[i].before), dash_or_size(rows[i].after),
               signed_size(rows[i].grown())});
    if (end < name.size()) table.note(name.substr(end + 1));
  }
  std::string out = "\n" + table.render(paint);
  if (rows.size() > top) {
    Bytes rest;
    for (std::size_t i = top; i < rows.size(); ++i) rest += rows[i].grown();
    out += paint.dim(fmt::format("  {} more change by {} together\n", grouped(rows.size() - top),
                                 rest == Bytes{} ? "nothing" : signed_size(rest)));
  }
  return out;
}

// Lines added up by the part of their names that `of` gives.
std::vector<Change> added_up(const std::vector<Change>& lines,
                             const std::function<std::string(const std::string&)>& of) {
  std::map<std::string, Change> sums;
  for (const Change& line : lines) {
    Change& sum = sums[of(line.name)];
    sum.name = of(line.name);
    sum.before += line.before;
    sum.after += line.after;
  }
  std::vector<Change> rows;
  rows.reserve(sums.size());
  for (const auto& [name, sum] : sums) rows.push_back(sum);
  std::stable_sort(rows.begin(), rows.end(), [](const Change& a, const Change& b) {
    return std::llabs(a.grown().raw()) > std::llabs(b.grown().raw());
  });
  return rows;
}

// Names are "model.py:12 forward: text".
std::string file_of(const std::string& name) {
  return name.substr(0, name.rfind(':', name.find(' ')));
}

std::vector<Change> by_file(const std::vector<Change>& lines) { return added_up(lines, file_of); }

std::vector<Change> by_function(const std::vector<Change>& lines) {
  return added_up(lines, [](const std::string& name) {
    const std::size_t space = std::min(name.find(' '), name.size());
    return file_of(name) + name.substr(space, name.find(": ", space) - space);
  });
}

std::string total_line(const Change& change) {
  return fmt::format("  {:<16} {:>10} → {:>10}   {}\n", change.name, format_size(change.before),
                     format_size(change.after), change_text(change));
}

std::string device_line(const RunDiff& diff) {
  const auto words = [](const RunFacts& facts) {
    return printable(facts.gpu.empty() ? facts.device : facts.device + ", " + facts.gpu);
  };
  const std::string before = words(diff.before);
  const std::string after = words(diff.after);
  return shorten(before == after ? before : before + " → " + after, kColumns) + "\n";
}

}  // namespace

std::string change_text(const Change& change) {
  if (change.grown() == Bytes{}) return "unchanged";
  if (change.before == Bytes{}) return signed_size(change.grown());
  return fmt::format(
      "{} ({:+.1f}%)", signed_size(change.grown()),
      100 * static_cast<double>(change.grown().raw()) / static_cast<double>(change.before.raw()));
}

std::string changes_text(const RunDiff& diff, std::size_t top, const Paint& paint, DiffBy by) {
  const auto wanted = [by](DiffBy one) { return by == DiffBy::kEverything || by == one; };
  std::string out;
  if (wanted(DiffBy::kCategory)) out += table("Category", diff.categories, top, paint);
  if (wanted(DiffBy::kModule)) out += table("Module, itself", diff.module_groups, top, paint);
  if (wanted(DiffBy::kOp)) out += table("Op", diff.ops, top, paint);
  if (wanted(DiffBy::kLine)) out += table("Line", diff.lines, top, paint, true);
  if (by == DiffBy::kFile) out += table("File", by_file(diff.lines), top, paint);
  if (by == DiffBy::kFunction) out += table("Function", by_function(diff.lines), top, paint);
  return out;
}

std::string diff_text(const std::string& before, const std::string& after, const RunDiff& diff,
                      std::size_t top, const Paint& paint, DiffBy by) {
  std::string out = paint.bold(shorten(printable(before), 38)) + " → " +
                    paint.bold(shorten(printable(after), 38));
  out += "\n" + device_line(diff) + total_line(diff.allocated);
  if (diff.reserved) out += total_line(*diff.reserved);
  const std::string changes = changes_text(diff, top, paint, by);
  const bool by_code = by == DiffBy::kLine || by == DiffBy::kFile || by == DiffBy::kFunction;
  if (by_code && (diff.before.lines.empty() || diff.after.lines.empty())) {
    return out + "\nOne of them has no call stacks, so there are no lines to compare.\n";
  }
  return out + (changes.empty() ? "\nBoth hold the same at their peaks.\n" : changes);
}

}  // namespace peakline::cli
