// Changes between two runs, for people.
#pragma once

#include <string>

#include <peakline/diff.h>
#include <peakline/text.h>

namespace peakline::cli {

// "+1.2 GiB (+3.4%)"; without the share when there was nothing before.
std::string change_text(const Change& change);

enum class DiffBy { kEverything, kCategory, kModule, kOp, kLine, kFunction, kFile };

// Tables of what changed most: by category, module, op and line, or one of them, at most `top` rows
// each.
std::string changes_text(const RunDiff& diff, std::size_t top, const Paint& paint,
                         DiffBy by = DiffBy::kEverything);

std::string diff_text(const std::string& before, const std::string& after, const RunDiff& diff,
                      std::size_t top, const Paint& paint, DiffBy by = DiffBy::kEverything);

}  // namespace peakline::cli
