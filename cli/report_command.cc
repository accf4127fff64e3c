// peakline report: everything a recording says, as one HTML file that opens anywhere.
#include <string>

#include <peakline/report.h>

#include "command.h"
#include "output.h"
#include "page.h"
#include "recording.h"

namespace peakline::cli {
namespace {

struct Flags {
  std::string recording;
  std::string out;
};

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// run.peak becomes run.html.
std::string html_beside(const std::string& recording) {
  constexpr std::string_view kEnding = ".peak";
  std::string stem = recording;
  if (stem.ends_with(kEnding)) stem.resize(stem.size() - kEnding.size());
  return stem + ".html";
}

int run_report(const Flags& flags) {
  const auto open = [&flags] { return open_file_source(flags.recording); };
  Result<Report> report = build_report(open);
  if (!report.ok()) return refuse_input(report.status());
  add_advice(report->summary, flags.recording);
  const Result<std::string> page =
      fill_page(kReportPage, report_to_json(*report, file_name(flags.recording)));
  if (!page.ok()) return refuse_input(page.status());
  const std::string out = flags.out.empty() ? html_beside(flags.recording) : flags.out;
  if (Status status = write_output(out, *page); !status.ok()) return fail_to_write(status);
  for (const std::string& warning : report->summary.warnings) complain(warning);
  if (out != "-") complain("wrote " + out);
  return kYes;
}

}  // namespace

Command add_report(CLI::App& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* parser = program.add_subcommand(
      "report", "One HTML file: timeline, what is alive when, modules, ops, segments");
  parser->add_option("recording", flags->recording, "A recording (.peak)")->required();
  parser
      ->add_option("-o,--output", flags->out,
                   "The file to write; - is stdout; default: beside the recording")
      ->type_name("FILE");
  parser->footer("Example:\n  peakline report run.peak -o report.html");
  return {parser, [flags] { return run_report(*flags); }};
}

}  // namespace peakline::cli
