#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "command.h"
#include "output.h"

namespace peakline::cli {
namespace {

// Commands that start a script are Python's: they get their arguments as they are.
struct PythonCommand {
  const char* name;
  const char* module;
  const char* help;
};

constexpr std::array<PythonCommand, 6> kPythonCommands{{
    {"calibrate", "_calibrate", "Measure a profile of the GPU at hand"},
    {"estimate", "_estimate_script", "How much memory a training script needs, without a GPU"},
    {"fit", "_fit_script", "The largest batch, or other argument of a script, that fits a GPU"},
    {"kv", "_kv_script", "How many tokens and requests a model can serve on a GPU"},
    {"plan", "_plan_script", "What to change so that a script fits a GPU, and what it costs"},
    {"run", "_run_script", "Track a training script as it really runs"},
}};

int parse_error(const CLI::ParseError& error) {
  complain(std::string(error.what()) + "; try --help");
  return kBadInput;
}

// The first word is no command and no flag.
bool is_unknown_command(CLI::App& program, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return false;
  return program.get_subcommands([&](CLI::App* command) { return command->check_name(argv[1]); })
      .empty();
}

int run(int argc, char** argv) {
  for (const PythonCommand& command : kPythonCommands) {
    if (argc > 1 && std::strcmp(argv[1], command.name) == 0) {
      return launch_python(command.module, argc - 2, argv + 2);
    }
  }
  CLI::App program("Exact memory tracking and estimation for PyTorch training", "peakline");
  program.set_version_flag("--version", "peakline " PEAKLINE_VERSION);
  program.require_subcommand(1);
  const std::array<Command, 8> commands{
      add_show(program),  add_report(program),   add_merge(program),  add_diff(program),
      add_check(program), add_simulate(program), add_import(program), add_export(program)};
  for (const PythonCommand& command : kPythonCommands) {
    program.add_subcommand(command.name, command.help);
  }
  if (is_unknown_command(program, argc, argv)) {
    complain("there is no command '" + std::string(argv[1]) + "'; try --help");
    return kBadInput;
  }
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return program.exit(asked);
  } catch (const CLI::ParseError& error) {
    return parse_error(error);
  }
  for (const Command& command : commands) {
    if (command.parser->parsed()) return command.run();
  }
  return kBadInput;
}

}  // namespace
}  // namespace peakline::cli

int main(int argc, char** argv) {
  try {
    return peakline::cli::run(argc, argv);
  } catch (const std::exception& error) {  // no memory, for one: nothing that input can cause
    std::fprintf(stderr, "peakline: cannot go on: %s\n", error.what());
    return peakline::cli::kFailed;
  }
}
