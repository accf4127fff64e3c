#include <fmt/format.h>

#include "text/sections.h"

namespace peakline {

std::string advice_lines(const std::vector<Saving>& advice, const Paint& paint) {
  if (advice.empty()) return "";
  std::string out = "\n" + paint.bold("What would need less, by simulation") + "\n";
  for (const Saving& saving : advice) {
    const std::string text =
        fmt::format("{} saves {}: {} reserved instead of {}; {}", printable(saving.what),
                    format_size(saving.before - saving.after), format_size(saving.after),
                    format_size(saving.before), printable(saving.why));
    for (const std::string& line : wrapped(text, "  - ")) out += line + "\n";
    out += "    " + printable(saving.command) + "\n";
  }
  return out;
}

}  // namespace peakline
