// peakline simulate: what a run would reserve under other allocator settings or with less memory.
#include <optional>
#include <string>

#include <peakline/simulate.h>
#include <peakline/simulate_text.h>

#include "command.h"
#include "output.h"

namespace peakline::cli {
namespace {

struct Flags {
  std::string file;
  std::optional<std::string> conf;
  std::string memory;
  std::string torch;
  std::string device;
  std::string json;
  bool compare = false;
};

Result<SimulateOptions> options_of(const Flags& flags) {
  SimulateOptions options;
  options.conf = flags.conf;
  options.device = flags.device;
  options.compare = flags.compare;
  if (!flags.memory.empty()) {
    const Result<Bytes> memory = parse_size(flags.memory);
    if (!memory.ok()) return memory.status();
    options.memory = *memory;
  }
  if (!flags.torch.empty()) {
    const Result<TorchVersion> torch = parse_torch_version(flags.torch);
    if (!torch.ok()) return torch.status();
    options.torch = *torch;
  }
  return options;
}

int run_simulate(const Flags& flags) {
  const Result<SimulateOptions> options = options_of(flags);
  if (!options.ok()) return refuse_input(options.status());
  const Result<SimulationResult> result = simulate_file(flags.file, *options);
  if (!result.ok()) return refuse_input(result.status());
  const Status written =
      flags.json.empty()
          ? write_output("-", simulation_text(flags.file, *result, Paint(wants_colour())))
          : write_output(flags.json, simulation_to_json(*result) + "\n");
  if (!written.ok()) return fail_to_write(written);
  for (const std::string& warning : result->warnings) complain(warning);
  for (const std::string& warning : result->diagnostics.sentences()) complain(warning);
  return result->outcome.fits ? kYes : kTooMuch;
}

}  // namespace

Command add_simulate(CLI::App& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* parser = program.add_subcommand(
      "simulate", "Reserved memory and OOM under other allocator settings, without a GPU");
  parser->add_option("file", flags->file, "A recording (.peak), allocator CSV or torch snapshot")
      ->required();
  parser
      ->add_option("--conf", flags->conf,
                   "Settings, as in PYTORCH_CUDA_ALLOC_CONF; default: the run's")
      ->type_name("TEXT");
  parser
      ->add_option("--memory", flags->memory,
                   "Limit of reserved memory, for example 24GiB; default: the run's")
      ->type_name("SIZE");
  parser->add_flag("--compare-confs", flags->compare, "Try the sensible settings and rank them");
  parser->add_option("--device", flags->device, "Which device; default: the one that reserves most")
      ->type_name("NAME");
  parser->add_option("--torch", flags->torch, "Rules of this torch release, 2.11 to 2.15")
      ->type_name("VERSION");
  parser->add_option("--json", flags->json, "Write everything as JSON; - is stdout")
      ->type_name("FILE");
  parser->footer(
      "Exits with 3 when it does not fit.\n"
      "Example:\n"
      "  peakline simulate run.peak --memory 24GiB\n"
      "  peakline simulate trace.csv --conf expandable_segments:True --compare-confs");
  return {parser, [flags] { return run_simulate(*flags); }};
}

}  // namespace peakline::cli
