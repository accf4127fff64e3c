// peakline export: recordings for other people's tools.
#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include <peakline/export.h>

#include "command.h"
#include "new_files.h"
#include "output.h"
#include "progress.h"
#include "recording.h"

namespace peakline::cli {
namespace {

struct Flags {
  std::vector<std::string> recordings;
  std::string to;
  std::string out;
  std::vector<std::string> tables;
};

// What went wrong, and whose fault it was; the warnings about the recordings where nothing did.
using Outcome = Result<std::vector<std::string>>;

// What every format gets.
struct Job {
  std::span<const ExportInput> runs;
  const Flags& flags;
  std::span<const std::string> tables;
  NewFiles& files;
};

Status make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return {};
  return io_error("cannot create the folder " + path + ": " + error.message());
}

// One table is one file; several are a folder of them.
Outcome to_csv(const Job& job) {
  const std::string& out = job.flags.out;
  const bool is_folder = job.tables.size() > 1;
  if (is_folder && out == "-") {
    return invalid_input("stdout takes one table as CSV: say which with --table");
  }
  if (is_folder) PEAKLINE_RETURN_IF_ERROR(make_folder(out));
  const auto writer = make_csv_writer([&](std::string_view table) {
    return job.files.open(is_folder ? out + "/" + std::string(table) + ".csv" : out);
  });
  return export_tables(job.runs, job.tables, *writer);
}

Outcome to_json(const Job& job) {
  Result<std::unique_ptr<Sink>> sink = job.files.open(job.flags.out);
  if (!sink.ok()) return sink.status();
  return export_tables(job.runs, job.tables, *make_json_writer(std::move(*sink)));
}

Outcome to_sqlite(const Job& job) {
  if (job.flags.out == "-") return invalid_input("a database is a file: stdout cannot be one");
  Result<std::unique_ptr<TableWriter>> writer = make_sqlite_writer(job.files.add(job.flags.out));
  if (!writer.ok()) return writer.status();
  return export_tables(job.runs, job.tables, **writer);
}

Outcome to_perfetto(const Job& job) {
  Result<std::unique_ptr<Sink>> sink = job.files.open(job.flags.out);
  if (!sink.ok()) return sink.status();
  return export_perfetto(job.runs, std::move(*sink));
}

Outcome to_snapshot(const Job& job) {
  Result<std::unique_ptr<Sink>> sink = job.files.open(job.flags.out);
  if (!sink.ok()) return sink.status();
  return export_snapshot(job.runs, std::move(*sink));
}

struct Format {
  std::string_view name;
  Outcome (*write)(const Job&);
  bool has_tables;
};

constexpr std::array kFormats{
    Format{"csv", to_csv, true},
    Format{"json", to_json, true},
    Format{"sqlite", to_sqlite, true},
    Format{"perfetto", to_perfetto, false},
    Format{"snapshot", to_snapshot, false},
};

Result<Format> format_of(const std::string& name) {
  std::string known;
  for (const Format& format : kFormats) {
    if (format.name == name) return format;
    known.append(known.empty() ? "" : ", ").append(format.name);
  }
  if (name == "parquet") {
    return invalid_input(
        "Parquet needs pyarrow, so Python writes it: peakline.export(\"run.peak\", \"folder\", "
        "to=\"parquet\")");
  }
  return invalid_input("there is no format '" + name + "'; there are " + known);
}

int run_export(const Flags& flags) {
  const Result<Format> format = format_of(flags.to);
  if (!format.ok()) return refuse_input(format.status());
  if (!format->has_tables && !flags.tables.empty()) {
    return refuse_input(invalid_input("--table goes with csv, json and sqlite"));
  }
  const Result<std::vector<std::string>> tables = choose_tables(flags.tables);
  if (!tables.ok()) return refuse_input(tables.status());
  std::uint64_t bytes = 0;
  for (const std::string& path : flags.recordings) {
    const Result<TraceReader> reader = open_recording(path);
    if (!reader.ok()) return refuse_input(reader.status());
    std::error_code ignored;  // what does not exist is nobody's
    if (std::filesystem::equivalent(path, flags.out, ignored)) {
      return refuse_input(invalid_input(path + " is the recording itself: name another file"));
    }
    bytes += size_of_file(path);
  }
  const std::size_t reads = format->has_tables ? table_reads(*tables) : 2;
  NewFiles files;
  const auto export_all = [&] {
    Progress progress("exporting", bytes * reads);
    std::vector<ExportInput> runs;
    for (const std::string& path : flags.recordings) runs.push_back({path, progress.opener(path)});
    return format->write({runs, flags, *tables, files});
  };
  const Outcome warnings = export_all();
  if (!warnings.ok()) return fail_to_write(warnings.status());
  if (Status kept = files.keep(); !kept.ok()) return fail_to_write(kept);
  for (const std::string& warning : *warnings) complain(warning);
  if (flags.out != "-") complain("wrote " + flags.out);
  return kYes;
}

}  // namespace

Command add_export(CLI::App& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* parser =
      program.add_subcommand("export", "Recordings as tables or traces for other tools");
  parser
      ->add_option("recordings", flags->recordings,
                   "A recording (.peak), or one for each rank (NAME.RANK.peak)")
      ->required();
  parser->add_option("--to", flags->to, "csv, json, sqlite, perfetto, snapshot")
      ->required()
      ->type_name("FORMAT");
  parser
      ->add_option("-o,--output", flags->out,
                   "The file to write, a folder for several tables as CSV; - is stdout")
      ->required()
      ->type_name("FILE");
  parser
      ->add_option("--table", flags->tables,
                   "Only this table: recordings, info, devices, categories, modules, ops, steps, "
                   "blocks, events; may be given more than once")
      ->type_name("NAME")
      ->expected(1)
      ->take_all();
  parser->footer(
      "Example:\n"
      "  peakline export run.peak --to csv --table blocks -o blocks.csv\n"
      "  peakline export run.*.peak --to json -o run.json");
  return {parser, [flags] { return run_export(*flags); }};
}

}  // namespace peakline::cli
