#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include <peakline/estimate_text.h>

#include "report/summary_reader.h"
#include "text/sections.h"
#include "text/top_modules.h"

namespace peakline {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kModules = 12;
constexpr std::size_t kSteps = 8;
constexpr std::size_t kRanks = 16;

std::string title(const Json& answer, std::string_view what, double seconds) {
  const std::string maker = printable(json_part::text(answer, "steps_by"));
  const std::string text = fmt::format("{}, torch {}, {}{} in {:.2f} s{}", printable(what),
                                       printable(json_part::text(answer, "torch")),
                                       counted(json_part::count(answer, "steps_completed"), "step"),
                                       maker.empty() ? "" : " of " + maker, seconds,
                                       json_part::is_true(answer, "partial") ? "; partial" : "");
  return shorten(text, kColumns) + "\n";
}

// What NCCL takes is outside of torch's allocator.
std::string nccl_line(const Json& answer) {
  const std::optional<Bytes> with_nccl = json_part::bytes(answer, "peak_with_nccl");
  if (!with_nccl || json_part::count(answer, "nccl_memory") == 0) return "";
  std::string remark = counted(json_part::of(answer, "communicators").size(), "communicator");
  if (json_part::is_true(answer, "nccl_guessed")) remark += ", guessed";
  return fact("With NCCL", format_size(*with_nccl), remark);
}

std::string needed_line(const Json& answer) {
  const std::optional<Bytes> needed = json_part::bytes(answer, "needed_reserved");
  return needed ? fact("Would do", format_size(*needed), "reserved, without the limit") : "";
}

std::string milliseconds(double ms) {
  if (ms >= 10000) return fmt::format("{:.2f} s", ms / 1e3);
  return ms >= 100 ? fmt::format("{:.0f} ms", ms) : fmt::format("{:.2f} ms", ms);
}

double number(const Json& answer, const char* key) {
  const auto found = answer.find(key);
  return found != answer.end() && found->is_number() ? found->get<double>() : 0;
}

// Tokens where there are any, else samples.
std::string throughput(const Json& answer) {
  const bool tokens = number(answer, "tokens_per_s") > 0;
  const double rate = number(answer, tokens ? "tokens_per_s" : "samples_per_s");
  if (rate <= 0) return "";
  const std::string text =
      rate < 100 ? fmt::format("{:.1f}", rate) : grouped(static_cast<std::uint64_t>(rate));
  return text + (tokens ? " tokens/s" : " samples/s");
}

// What bounds a step.
std::string bound(const Json& answer, double step) {
  std::string text = "bound by " + printable(json_part::text(answer, "bound_by"));
  text += fmt::format("; GPU busy {:.0f}%", 100 * number(answer, "gpu_busy_ms") / step);
  const double network = number(answer, "network_ms");
  if (network <= 0) return text;
  return text + fmt::format("; network {}, {:.0f}% of it hidden", milliseconds(network),
                            100 * number(answer, "hidden_network_ms") / network);
}

// How well the GPU is used, and how sure all this is.
std::string how_sure(const Json& answer, double step) {
  std::string text = json_part::text(answer, "timed_by") == "measured"
                         ? "rates measured on such a GPU"
                         : "rates from a data sheet";
  const double guessed = number(answer, "guessed_time_ms");
  if (guessed > 0.01 * step) text += fmt::format("; {:.0f}% guessed", 100 * guessed / step);
  const double mfu = number(answer, "mfu");
  return mfu > 0 ? fmt::format("MFU {:.1f}%; ", 100 * mfu) + text : text;
}

std::string time_lines(const Json& answer) {
  const double step = number(answer, "step_ms");
  if (step <= 0) return "";
  return wrapped_fact("Time per step", milliseconds(step), bound(answer, step)) +
         wrapped_fact("Speed", throughput(answer), how_sure(answer, step));
}

std::string head(const Json& answer, const Summary& summary, const Paint& paint) {
  const DeviceSummary& device = summary.devices.front();
  return device_title(device, paint) + peak_lines(device) + confidence_line(device) +
         reserved_line(device) + nccl_line(answer) +
         limit_line(device, json_part::is_true(answer, "partial"),
                    json_part::bytes(answer, "memory_spare")) +
         needed_line(answer) + settings_line(summary) + time_lines(answer);
}

std::string modules(const DeviceSummary& device, const Paint& paint) {
  Table table(module_columns());
  std::vector<std::string_view> above;  // paths of the shown modules around this one
  for (const ShownModule& shown : top_modules(device.modules, kModules)) {
    while (!above.empty() && !shown.row->path.starts_with(std::string(above.back()) + ".")) {
      above.pop_back();
    }
    const std::string name =
        above.empty() ? shown.path : shown.path.substr(above.back().size() + 1);
    std::vector<std::string> cells = module_cells(*shown.row);
    cells.insert(cells.begin(), std::string(above.size() * 2, ' ') + printable(name));
    table.add(std::move(cells));
    above.push_back(shown.row->path);
  }
  if (table.empty()) return "";
  return "\n" + paint.bold("Top modules at the peak") + "\n" + table.render(paint);
}

std::string listed(const std::vector<NamedBytes>& rows) {
  constexpr std::size_t kListed = 6;
  std::string text;
  for (std::size_t i = 0; i < std::min(rows.size(), kListed); ++i) {
    text += (i == 0 ? "" : ", ") + rows[i].name + " " + format_size(rows[i].bytes);
  }
  return text.empty() ? "nothing" : text;
}

std::string out_of_memory(const Json& answer, const Paint& paint) {
  const Json& oom = json_part::of(answer, "oom");
  if (!oom.is_object()) return "";
  std::string out = "\n" + paint.bold("Out of memory") + "\n";
  const auto add = [&out](const std::string& sentence) {
    for (const std::string& line : wrapped(printable(sentence), "  ")) out += line + "\n";
  };
  add(json_part::text(oom, "message"));
  add(json_part::text(oom, "where"));
  add("Alive then, by category: " + listed(json_part::by_name(oom, "by_category")) + ".");
  add("By module: " + listed(json_part::by_name(oom, "by_module")) + ".");
  const std::vector<NamedBytes> lines = json_part::by_name(oom, "by_line");
  if (!lines.empty()) add("By line: " + listed(lines) + ".");
  add(json_part::text(oom, "fragmentation"));
  add(json_part::text(oom, "advice"));
  for (const std::string& sentence : json_part::texts(oom, "would_help")) add(sentence);
  return out;
}

std::string points(std::string_view title, const std::vector<std::string>& sentences,
                   const Paint& paint) {
  if (sentences.empty()) return "";
  std::string out = "\n" + paint.bold(title) + "\n";
  for (const std::string& sentence : sentences) {
    for (const std::string& line : wrapped(printable(sentence), "  - ")) out += line + "\n";
  }
  return out;
}

// A leak is something that the estimate does know.
std::string warnings_text(const std::vector<std::string>& warnings, const Paint& paint) {
  std::vector<std::string> leaks;
  std::vector<std::string> unknown;
  for (const std::string& warning : warnings) {
    (warning.find(kGrowsWithEveryStep) == std::string::npos ? unknown : leaks).push_back(warning);
  }
  return points("Leaks", leaks, paint) + points("What the estimate could not know", unknown, paint);
}

struct Rank {
  std::uint64_t number = 0;
  Bytes allocated;
  std::optional<Bytes> reserved;
  bool partial = false;
};

std::vector<Rank> ranks_of(const Json& answer) {
  std::vector<Rank> ranks;
  for (const Json& row : json_part::of(answer, "ranks")) {
    ranks.push_back({json_part::count(row, "rank"),
                     json_part::bytes(row, "peak_allocated").value_or(Bytes{}),
                     json_part::bytes(row, "peak_reserved"), json_part::is_true(row, "partial")});
  }
  return ranks;
}

// One of each kind; of many the largest, in the order of their numbers.
std::string ranks(const Json& answer, const Paint& paint) {
  std::vector<Rank> shown = ranks_of(answer);
  if (shown.empty()) return "";
  const std::size_t all = shown.size();
  std::ranges::stable_sort(shown, std::greater{},
                           [](const Rank& rank) { return rank.reserved.value_or(Bytes{}); });
  shown.resize(std::min(all, kRanks));
  std::ranges::sort(shown, {}, &Rank::number);
  Table table({"Rank", "Peak allocated", "Peak reserved", ""});
  for (const Rank& rank : shown) {
    std::string remark = rank.number == json_part::count(answer, "rank") ? "the largest" : "";
    if (rank.partial) remark += remark.empty() ? "partial" : ", partial";
    table.add({grouped(rank.number), format_size(rank.allocated), dash_or_size(rank.reserved),
               std::move(remark)});
  }
  std::string out = "\n" + paint.bold("Ranks, one of each kind") + "\n" + table.render(paint);
  if (all > shown.size()) {
    out += paint.dim("  " + counted(all - shown.size(), "smaller one") + "\n");
  }
  return out;
}

// The virtual GPU's devices; what the script keeps on the host is not asked here.
Summary without_host(Summary summary) {
  std::erase_if(summary.devices, [](const DeviceSummary& device) { return device.name == "cpu"; });
  return summary;
}

}  // namespace

Result<std::string> estimate_text(std::string_view answer, std::string_view what, double seconds,
                                  const Paint& paint) {
  const Json json = Json::parse(answer, nullptr, false);
  if (!json.is_object()) return invalid_input("the answer of an estimate is one JSON object");
  const Summary summary = without_host(summary_from_json(json));
  std::string out = title(json, what, seconds);
  if (summary.devices.empty()) return out + "\nNothing was allocated on a GPU.\n";
  const DeviceSummary& device = summary.devices.front();
  std::vector<StepRow> steps = device.steps;
  steps.resize(std::min<std::size_t>(steps.size(), summary.steps_completed));
  return out + head(json, summary, paint) + category_bars(device, paint) + modules(device, paint) +
         step_table(steps, kSteps, paint) + other_devices(summary, paint) +
         out_of_memory(json, paint) + advice_lines(summary.advice, paint) +
         warnings_text(summary.warnings, paint) + ranks(json, paint);
}

}  // namespace peakline
