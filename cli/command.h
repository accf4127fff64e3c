// One subcommand, one file: each adds its flags to the program and knows how to run.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>

namespace peakline::cli {

// What scripts can rely on.
enum ExitCode : int {
  kYes = 0,
  kFailed = 1,    // the tool or the script failed
  kBadInput = 2,  // bad usage or bad input
  kTooMuch = 3,   // does not fit, or over the limit
};

// A subcommand's parser and what to do once its flags are filled in. The parser belongs to
// `program`.
struct Command {
  CLI::App* parser = nullptr;
  std::function<int()> run;
};

Command add_check(CLI::App& program);
Command add_diff(CLI::App& program);
Command add_export(CLI::App& program);
Command add_import(CLI::App& program);
Command add_merge(CLI::App& program);
Command add_report(CLI::App& program);
Command add_show(CLI::App& program);
Command add_simulate(CLI::App& program);

// Runs peakline.<module> with `argv` as a Python program in place of this one. Returns only on
// failure.
int launch_python(const char* module, int argc, char** argv);

}  // namespace peakline::cli
