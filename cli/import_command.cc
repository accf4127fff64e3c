// peakline import: somebody else's file becomes a recording.
#include <array>
#include <cstdio>
#include <span>
#include <string>

#include <peakline/import.h>
#include <peakline/text.h>
#include <peakline/trace.h>

#include "command.h"
#include "output.h"

namespace peakline::cli {
namespace {

struct Flags {
  std::string file;
  std::string out;
};

Result<FileKind> kind_of(const std::string& path) {
  Result<std::unique_ptr<Source>> source = open_file_source(path);
  if (!source.ok()) return source.status();
  std::array<std::byte, 256> start{};
  const Result<std::size_t> size = (*source)->read(start);
  if (!size.ok()) return size.status();
  return kind_of_file(std::span(start).first(*size));
}

Result<ImportedCounts> import_into(const std::string& path, FileKind kind, EventSink& sink) {
  const auto open = [&path] { return open_file_source(path); };
  if (kind == FileKind::kPickle) return import_snapshot(open, sink);
  Result<std::unique_ptr<Source>> source = open();
  if (!source.ok()) return source.status();
  return import_csv(**source, sink);
}

int run_import(const Flags& flags) {
  const Result<FileKind> kind = kind_of(flags.file);
  if (!kind.ok()) return refuse_input(kind.status());
  if (*kind == FileKind::kRecording) {
    return refuse_input(invalid_input(flags.file + " is a recording already"));
  }
  if (*kind == FileKind::kOther) {
    return refuse_input(
        invalid_input(flags.file +
                      " is neither a torch memory snapshot (a pickle) nor an allocator CSV "
                      "with the columns action,addr,size,stream"));
  }
  // Under another name first: a file that cannot be read must not leave half a recording behind.
  const std::string unfinished = flags.out + ".unfinished";
  Result<std::unique_ptr<Sink>> file = open_file_sink(unfinished);
  if (!file.ok()) return fail_to_write(file.status());
  TraceWriter writer(std::move(file).value());
  const Result<ImportedCounts> counts = import_into(flags.file, *kind, *make_writer_sink(writer));
  const Status closed = writer.close();
  if (!counts.ok() || !closed.ok()) {
    std::remove(unfinished.c_str());
    return counts.ok() ? fail_to_write(closed) : refuse_input(counts.status());
  }
  if (std::rename(unfinished.c_str(), flags.out.c_str()) != 0) {
    return fail_to_write(io_error("cannot rename " + unfinished + " to " + flags.out));
  }
  complain("wrote " + flags.out + ": " + counted(counts->allocations, "allocation") + ", " +
           counted(counts->frees, "free") + ", " + counted(counts->segments, "segment") + ", " +
           counted(counts->already_alive, "block") + " alive before the trace");
  return kYes;
}

}  // namespace

Command add_import(CLI::App& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* parser = program.add_subcommand(
      "import", "Turn a torch memory snapshot or an allocator CSV into a recording");
  parser->add_option("file", flags->file, "A snapshot (.pickle) or an allocator trace (.csv)")
      ->required();
  parser->add_option("-o,--output", flags->out, "The recording to write (.peak)")
      ->required()
      ->type_name("FILE");
  parser->footer("Example:\n  peakline import snapshot.pickle -o run.peak");
  return {parser, [flags] { return run_import(*flags); }};
}

}  // namespace peakline::cli
