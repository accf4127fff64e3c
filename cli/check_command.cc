// peakline check: a gate for CI. Exits with 3 when a run needs more memory than it may.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <optional>
#include <string>

#include <peakline/diff.h>

#include "command.h"
#include "diff_text.h"
#include "output.h"
#include "recording.h"

namespace peakline::cli {
namespace {

struct Flags {
  std::string recording;
  std::string max;
  std::string baseline;
  std::string tolerance = "1%";
  bool update = false;
};

// How much more than the baseline is accepted: a share of it, or a size.
struct Tolerance {
  double share = 0;
  Bytes bytes;

  [[nodiscard]] Bytes above(Bytes baseline) const {
    return bytes + Bytes(static_cast<std::int64_t>(share * static_cast<double>(baseline.raw())));
  }
};

Result<Tolerance> parse_tolerance(std::string_view text) {
  Tolerance tolerance;
  if (!text.ends_with('%')) {
    const Result<Bytes> bytes = parse_size(text);
    if (!bytes.ok()) {
      return invalid_input(fmt::format(
          "cannot read the tolerance '{}'; give a share like 1% or a size like 64MiB", text));
    }
    tolerance.bytes = *bytes;
    return tolerance;
  }
  double percent = 0;
  const char* end = text.data() + text.size() - 1;
  const auto [rest, error] = std::from_chars(text.data(), end, percent);
  if (error != std::errc{} || rest != end || percent < 0 || percent > 1e6) {
    return invalid_input(fmt::format("cannot read the tolerance '{}'; give a share like 1%", text));
  }
  tolerance.share = percent / 100;
  return tolerance;
}

// What a limit is compared with: reserved memory is what runs out, where it is known.
Change needed(const RunFacts& facts) {
  if (facts.peak_reserved) return {"Peak reserved", {}, *facts.peak_reserved};
  return {"Peak allocated", {}, facts.peak_allocated};
}

std::string alive_text(const RunFacts& facts) {
  std::string out = "\nAlive at the peak, by category\n";
  for (const NamedBytes& row : facts.categories) {
    out +=
        fmt::format("  {:<24} {:>10}\n", shorten(printable(row.name), 24), format_size(row.bytes));
  }
  return out;
}

// True when the run is within the limit. Says so either way.
bool check_limit(const RunFacts& facts, Bytes limit) {
  const Change need = needed(facts);
  if (need.after <= limit) {
    static_cast<void>(write_output(
        "-",
        fmt::format("ok    {} {}, {} below the limit of {}\n", need.name, format_size(need.after),
                    format_size(limit - need.after), format_size(limit))));
    return true;
  }
  static_cast<void>(write_output(
      "-",
      fmt::format("OVER  {} {} is {} above the limit of {}\n{}", need.name, format_size(need.after),
                  format_size(need.after - limit), format_size(limit), alive_text(facts))));
  return false;
}

bool is_over(const Change& change, const Tolerance& tolerance) {
  return change.grown() > tolerance.above(change.before);
}

std::string verdict(const Change& change, const Tolerance& tolerance) {
  return fmt::format("{}  {} {} → {}, {}\n      accepted: +{}\n",
                     is_over(change, tolerance) ? "OVER" : "ok  ", change.name,
                     format_size(change.before), format_size(change.after), change_text(change),
                     format_size(tolerance.above(change.before)));
}

bool check_growth(const RunDiff& diff, const Tolerance& tolerance) {
  bool good = !is_over(diff.allocated, tolerance);
  std::string out = verdict(diff.allocated, tolerance);
  if (diff.reserved) {
    good &= !is_over(*diff.reserved, tolerance);
    out += verdict(*diff.reserved, tolerance);
  }
  if (!good) {
    out += "\nWhat changed against the baseline\n" + changes_text(diff, 10, Paint(wants_colour()));
  } else if (Change back{"", diff.allocated.after, diff.allocated.before};
             is_over(back, tolerance)) {
    out += "      less than the baseline: --update keeps it so\n";
  }
  static_cast<void>(write_output("-", out));
  return good;
}

bool check_ooms(const RunFacts& facts) {
  if (facts.ooms == 0) return true;
  static_cast<void>(write_output("-", fmt::format("OVER  out of memory during the run, {}\n{}",
                                                  counted(facts.ooms, "time"), alive_text(facts))));
  return false;
}

// What the flags say, checked before any file is read.
struct Rules {
  std::optional<Bytes> max;
  Tolerance tolerance;
};

Result<Rules> rules_of(const Flags& flags) {
  Rules rules;
  if (flags.max.empty() && flags.baseline.empty()) {
    return invalid_input("nothing to check: give --max SIZE, --baseline FILE or both; try --help");
  }
  if (flags.update && flags.baseline.empty()) {
    return invalid_input("--update needs --baseline FILE: the file to write");
  }
  if (!flags.max.empty()) {
    const Result<Bytes> max = parse_size(flags.max);
    if (!max.ok()) return max.status();
    rules.max = *max;
  }
  const Result<Tolerance> tolerance = parse_tolerance(flags.tolerance);
  if (!tolerance.ok()) return tolerance.status();
  rules.tolerance = *tolerance;
  return rules;
}

Result<RunFacts> read_baseline(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) {
    return invalid_input("there is no baseline '" + path + "' yet; --update writes it");
  }
  const Result<std::string> text = read_text(path);
  if (!text.ok()) return text.status();
  return facts_from_json(*text, path);
}

int run_check(const Flags& flags) {
  const Result<Rules> rules = rules_of(flags);
  if (!rules.ok()) return refuse_input(rules.status());
  const Result<Summary> summary = read_summary(flags.recording);
  if (!summary.ok()) return refuse_input(summary.status());
  const RunFacts facts = facts_of(*summary);
  bool good = check_ooms(facts);
  if (rules->max) good &= check_limit(facts, *rules->max);
  if (flags.update) {
    const Status written = write_output(flags.baseline, facts_to_json(facts) + "\n");
    if (!written.ok()) return fail_to_write(written);
    complain("wrote " + flags.baseline);
  } else if (!flags.baseline.empty()) {
    const Result<RunFacts> baseline = read_baseline(flags.baseline);
    if (!baseline.ok()) return refuse_input(baseline.status());
    good &= check_growth(diff_runs(*baseline, facts), rules->tolerance);
  }
  for (const std::string& warning : summary->warnings) complain(warning);
  return good ? kYes : kTooMuch;
}

}  // namespace

Command add_check(CLI::App& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* parser =
      program.add_subcommand("check", "A gate for CI: fails when a run needs too much memory");
  parser->add_option("recording", flags->recording, "A recording (.peak)")->required();
  parser->add_option("--max", flags->max, "Most memory that the run may need, for example 24GiB")
      ->type_name("SIZE");
  parser->add_option("--baseline", flags->baseline, "What the run needed when all was well (.json)")
      ->type_name("FILE");
  parser->add_option("--tolerance", flags->tolerance, "Accepted growth, for example 1% or 64MiB")
      ->capture_default_str()
      ->type_name("AMOUNT");
  parser->add_flag("--update", flags->update, "Write the baseline instead of comparing with it");
  parser->footer(
      "--max is compared with reserved memory where the recording knows it, else with allocated.\n"
      "Exits with 0 when all is well, 3 when the run needs too much, 2 when it cannot tell.\n"
      "Example:\n"
      "  peakline check run.peak --max 24GiB\n"
      "  peakline check run.peak --baseline memory.json --update    # once, then commit it\n"
      "  peakline check run.peak --baseline memory.json --tolerance 1%");
  return {parser, [flags] { return run_check(*flags); }};
}

}  // namespace peakline::cli
