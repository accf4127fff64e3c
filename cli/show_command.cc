// peakline show: what a recording says, as text, JSON or CSV.
#include <map>
#include <string>

#include <peakline/show_text.h>
#include <peakline/summary.h>

#include "command.h"
#include "live.h"
#include "output.h"
#include "recording.h"

namespace peakline::cli {
namespace {

struct Flags {
  std::string recording;
  std::string json;
  std::string csv;
  std::string table = "modules";
  ShowOptions show;
  std::string view;
  bool growth = false;
  bool live = false;
};

Status answer(const Flags& flags, const Summary& summary) {
  if (!flags.json.empty()) {
    PEAKLINE_RETURN_IF_ERROR(write_output(flags.json, summary_to_json(summary) + "\n"));
  }
  if (!flags.csv.empty()) {
    const Result<std::string> csv = summary_to_csv(summary, flags.table);
    if (!csv.ok()) return csv.status();
    PEAKLINE_RETURN_IF_ERROR(write_output(flags.csv, *csv));
  }
  if (!flags.json.empty() || !flags.csv.empty()) return {};
  return write_output("-", show_text(flags.recording, summary, flags.show, Paint(wants_colour())));
}

const std::map<std::string, ShowBy> kViews{
    {"category", ShowBy::kCategory}, {"module", ShowBy::kModule},     {"op", ShowBy::kOp},
    {"line", ShowBy::kLine},         {"function", ShowBy::kFunction}, {"file", ShowBy::kFile},
    {"region", ShowBy::kRegion}};

int run_show(Flags& flags) {
  if (const auto view = kViews.find(flags.view); view != kViews.end()) {
    flags.show.by = view->second;
  } else if (!flags.view.empty()) {
    return refuse_input(
        invalid_input("there is no view by '" + flags.view +
                      "'; choose category, module, op, line, function, file or region"));
  }
  if (flags.growth) flags.show.by = ShowBy::kGrowth;
  if (flags.live) {
    if (flags.json.empty() && flags.csv.empty()) return follow(flags.recording);
    return refuse_input(invalid_input("--live shows text: --json and --csv come after the run"));
  }
  Result<Summary> summary = read_summary(flags.recording);
  if (!summary.ok()) return refuse_input(summary.status());
  add_advice(*summary, flags.recording);
  if (Status status = answer(flags, *summary); !status.ok()) return fail_to_write(status);
  for (const std::string& warning : summary->warnings) complain(warning);
  return kYes;
}

}  // namespace

Command add_show(CLI::App& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* parser =
      program.add_subcommand("show", "What a recording says: peak, modules, ops, steps");
  parser->add_option("recording", flags->recording, "A recording (.peak)")->required();
  parser->add_option("--depth", flags->show.depth, "How deep to show the module tree")
      ->capture_default_str()
      ->type_name("N");
  parser->add_option("--top", flags->show.top, "How many ops to show")
      ->capture_default_str()
      ->type_name("N");
  parser
      ->add_option("--by", flags->view,
                   "One table only: category, module, op, line, function, file, region")
      ->type_name("NAME");
  parser->add_flag("--growth", flags->growth, "What keeps more memory with every step");
  parser->add_option("--json", flags->json, "Write everything as JSON; - is stdout")
      ->type_name("FILE");
  parser->add_option("--csv", flags->csv, "Write one table as CSV; - is stdout")->type_name("FILE");
  parser
      ->add_option(
          "--table", flags->table,
          "Which table --csv writes: categories, modules, ops, lines, regions, steps,\ntimeline")
      ->capture_default_str()
      ->type_name("NAME");
  parser->add_flag("--live", flags->live, "Follow a recording that is still being written");
  parser->footer(
      "Example:\n  peakline show run.peak --depth 3\n  peakline show run.peak --by line\n  "
      "peakline show run.peak --live\n  peakline "
      "show run.peak --json - | jq "
      ".peak_allocated");
  return {parser, [flags] { return run_show(*flags); }};
}

}  // namespace peakline::cli
