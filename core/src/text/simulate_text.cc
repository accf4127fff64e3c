#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include <peakline/simulate_text.h>

namespace peakline {
namespace {

constexpr std::size_t kRows = 8;

std::string setting_name(const std::string& conf) { return conf.empty() ? "(default)" : conf; }

double percent(Bytes part, Bytes whole) { return 100 * share_of(part, whole); }

std::string use_text(const MemoryUse& use) {
  std::string text = fmt::format("  {:<22}{:>12}\n", "asked for", format_size(use.requested));
  text += fmt::format("  {:<22}{:>12}\n", "rounding of blocks", format_size(use.rounding));
  if (use.waiting > Bytes{}) {
    text += fmt::format("  {:<22}{:>12}\n", "waiting for streams", format_size(use.waiting));
  }
  text += fmt::format("  {:<22}{:>12}   {:.1f}% of reserved\n", "free in segments",
                      format_size(use.cached), percent(use.cached, use.reserved));
  return text;
}

std::string rows_text(const std::vector<NamedBytes>& rows) {
  std::string text;
  for (std::size_t i = 0; i < std::min(rows.size(), kRows); ++i) {
    text += fmt::format("  {:<50}{:>12}\n", shorten(printable(rows[i].name), 48),
                        format_size(rows[i].bytes));
  }
  if (rows.size() > kRows) text += fmt::format("  … and {} more\n", rows.size() - kRows);
  return text;
}

std::string oom_text(const OomReport& oom, const Paint& paint) {
  std::string text =
      paint.warn("out of memory") +
      fmt::format(" in step {}, asking for {}", oom.step, format_size(oom.info.requested));
  if (!oom.op.empty()) text += fmt::format(", in {}", printable(oom.op));
  if (!oom.module.empty()) text += fmt::format(" of {}", printable(oom.module));
  text += "\n\ntorch would say:\n  " + oom.message +
          "\n\nreserved at that moment: " + format_size(oom.use.reserved) + "\n" +
          use_text(oom.use);
  text +=
      fmt::format("  {:<22}{:>12}\n", "largest free block", format_size(oom.largest_free_block));
  if (oom.only_fragmented) {
    text += "The free bytes would have been enough in one piece: this is fragmentation.\n";
  }
  text += "\nalive, by category\n" + rows_text(oom.by_category);
  text += "\nalive, by module\n" + rows_text(oom.by_module);
  return text;
}

std::string help_text(const SimulationResult& result) {
  std::string text;
  for (const SettingOutcome& other : result.others) {
    if (!other.fits) continue;
    if (text.empty()) text = "\nsettings that would have let it pass\n";
    text +=
        fmt::format("  {:<50}{:>12} reserved, {}\n", setting_name(other.conf),
                    format_size(other.peak_reserved), counted(other.retries, "retry", "retries"));
  }
  if (!text.empty()) return text;
  return "\nNone of the settings that were tried lets it pass: it needs less memory or a larger "
         "GPU.\n";
}

std::string table_text(const SimulationResult& result, const Paint& paint) {
  Table table({"setting", "fits", "reserved", "free inside", "segments", "retries"});
  const auto add = [&](const SettingOutcome& row) {
    table.add({setting_name(row.conf), row.fits ? "yes" : "no", format_size(row.peak_reserved),
               fmt::format("{:.1f}%", percent(row.at_peak.cached, row.at_peak.reserved)),
               grouped(row.segments), grouped(row.retries)});
  };
  std::vector<SettingOutcome> rows = result.others;
  rows.push_back(result.outcome);
  std::ranges::stable_sort(rows, {}, [](const SettingOutcome& row) {
    return std::tuple(!row.fits, row.retries, row.peak_reserved.raw());
  });
  for (const SettingOutcome& row : rows) add(row);
  return "\n" + table.render(paint);
}

}  // namespace

std::string simulation_text(const std::string& file, const SimulationResult& result,
                            const Paint& paint) {
  const SettingOutcome& outcome = result.outcome;
  std::string text = paint.bold(fmt::format("{}  {}", printable(file), result.device));
  text += fmt::format("  {}", setting_name(outcome.conf));
  if (result.settings_from == SettingsSource::kRecording) text += " (the run's settings)";
  if (result.memory) text += "  limit " + format_size(*result.memory);
  text += "\n\n";
  if (result.oom) text += oom_text(*result.oom, paint) + help_text(result) + "\n";
  text += fmt::format("peak reserved   {:>12}\n", format_size(outcome.peak_reserved));
  if (!result.oom) text += use_text(outcome.at_peak);
  text += fmt::format("peak allocated  {:>12}\n", format_size(outcome.peak_allocated));
  text += fmt::format("segments taken {}, returned {}; retries {}, out of memory {}\n",
                      grouped(outcome.segments), grouped(outcome.device_frees),
                      grouped(outcome.retries), grouped(outcome.ooms));
  if (result.recorded) {
    const RecordedSegments& recorded = *result.recorded;
    text +=
        recorded.equal
            ? fmt::format("as recorded: {} of segments, peak {}\n",
                          counted(recorded.changes, "change"), format_size(recorded.peak_reserved))
            : fmt::format("recorded peak   {:>12}; the first {} of {} changes of segments agree\n",
                          format_size(recorded.peak_reserved), grouped(recorded.same),
                          grouped(recorded.changes));
  }
  if (!result.others.empty() && !result.oom) text += table_text(result, paint);
  return text;
}

}  // namespace peakline
