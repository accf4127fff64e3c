// peakline diff: what changed between two recordings, as text, JSON or HTML.
#include <map>
#include <string>

#include <peakline/diff.h>
#include <peakline/report.h>

#include "command.h"
#include "diff_text.h"
#include "output.h"
#include "page.h"
#include "recording.h"

namespace peakline::cli {
namespace {

struct Flags {
  std::string before;
  std::string after;
  std::string json;
  std::string html;
  std::size_t top = 10;
  std::string view;
  DiffBy by = DiffBy::kEverything;
};

const std::map<std::string, DiffBy> kViews{
    {"category", DiffBy::kCategory}, {"module", DiffBy::kModule},     {"op", DiffBy::kOp},
    {"line", DiffBy::kLine},         {"function", DiffBy::kFunction}, {"file", DiffBy::kFile}};

Status answer(const Flags& flags, const RunDiff& diff) {
  if (!flags.json.empty()) {
    PEAKLINE_RETURN_IF_ERROR(write_output(flags.json, diff_to_json(diff) + "\n"));
  }
  if (!flags.html.empty()) {
    const Result<std::string> page =
        fill_page(kReportPage, diff_page_json(diff, flags.before, flags.after));
    if (!page.ok()) return page.status();
    PEAKLINE_RETURN_IF_ERROR(write_output(flags.html, *page));
  }
  if (!flags.json.empty() || !flags.html.empty()) return {};
  const Paint paint(wants_colour());
  return write_output("-", diff_text(flags.before, flags.after, diff, flags.top, paint, flags.by));
}

int run_diff(Flags& flags) {
  if (const auto view = kViews.find(flags.view); view != kViews.end()) {
    flags.by = view->second;
  } else if (!flags.view.empty()) {
    return refuse_input(invalid_input("there is no view by '" + flags.view +
                                      "'; choose category, module, op, line, function or file"));
  }
  const Result<Summary> before = read_summary(flags.before);
  if (!before.ok()) return refuse_input(before.status());
  const Result<Summary> after = read_summary(flags.after);
  if (!after.ok()) return refuse_input(after.status());
  const RunDiff diff = diff_runs(facts_of(*before), facts_of(*after));
  if (Status status = answer(flags, diff); !status.ok()) return fail_to_write(status);
  for (const std::string& warning : before->warnings) complain(flags.before + ": " + warning);
  for (const std::string& warning : after->warnings) complain(flags.after + ": " + warning);
  return kYes;
}

}  // namespace

Command add_diff(CLI::App& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* parser = program.add_subcommand(
      "diff", "What grew between two recordings, by category, module, op, line");
  parser->add_option("before", flags->before, "A recording (.peak)")->required();
  parser->add_option("after", flags->after, "Another one, to compare with it")->required();
  parser->add_option("--top", flags->top, "How many rows of each table to show")
      ->capture_default_str()
      ->type_name("N");
  parser
      ->add_option("--by", flags->view,
                   "One table only: category, module, op, line, function, file")
      ->type_name("NAME");
  parser->add_option("--json", flags->json, "Write all changes as JSON; - is stdout")
      ->type_name("FILE");
  parser->add_option("-o,--output", flags->html, "Write a page to look at; - is stdout")
      ->type_name("FILE.html");
  parser->footer("Example:\n  peakline diff before.peak after.peak -o diff.html");
  return {parser, [flags] { return run_diff(*flags); }};
}

}  // namespace peakline::cli
