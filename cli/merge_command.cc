// peakline merge: the recordings of many ranks as one view.
#include <string>
#include <vector>

#include <peakline/merge.h>

#include "command.h"
#include "merge_text.h"
#include "output.h"

namespace peakline::cli {
namespace {

struct Flags {
  std::vector<std::string> recordings;
  std::string json;
  std::size_t top = 8;
};

int run_merge(const Flags& flags) {
  RankMerge merge;
  Status last;
  for (const std::string& path : flags.recordings) {
    Result<RankUse> use = read_rank(path);
    if (use.ok()) {
      merge.add(std::move(use).value());
    } else {
      merge.add_unreadable(path, last = use.status());
    }
  }
  if (merge.count() == 0) return refuse_input(last);
  const std::string text = flags.json.empty() ? merge_text(merge, flags.top, Paint(wants_colour()))
                                              : merge_to_json(merge) + "\n";
  const std::string& where = flags.json.empty() ? "-" : flags.json;
  if (Status status = write_output(where, text); !status.ok()) return fail_to_write(status);
  for (const std::string& warning : merge.warnings()) complain(warning);
  return kYes;
}

}  // namespace

Command add_merge(CLI::App& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* parser = program.add_subcommand(
      "merge", "The recordings of many ranks: how they differ, which is worst, and why");
  parser->add_option("recordings", flags->recordings, "Recordings, one a rank (NAME.RANK.peak)")
      ->required();
  parser->add_option("--top", flags->top, "How many modules to show")
      ->capture_default_str()
      ->type_name("N");
  parser->add_option("--json", flags->json, "Write the answer as JSON; - is stdout")
      ->type_name("FILE");
  parser->footer("Example:\n  peakline merge run.*.peak");
  return {parser, [flags] { return run_merge(*flags); }};
}

}  // namespace peakline::cli
