#include "recording.h"

#include <array>
#include <span>

#include <peakline/advice.h>

namespace peakline::cli {

Result<TraceReader> open_recording(const std::string& path) {
  Result<std::unique_ptr<Source>> source = open_file_source(path);
  if (!source.ok()) return source.status();
  return TraceReader::open(std::move(source).value());
}

Result<Summary> read_summary(const std::string& path, const SummaryOptions& options) {
  Result<TraceReader> reader = open_recording(path);
  if (!reader.ok()) return reader.status();
  return summarize(*reader, options);
}

void add_advice(Summary& summary, const std::string& path) {
  Result<std::vector<Saving>> advice = advise([&path] { return open_file_source(path); });
  if (advice.ok()) summary.advice = std::move(*advice);
}

Result<std::string> read_text(const std::string& path) {
  constexpr std::size_t kMost = std::size_t{1} << 30;
  Result<std::unique_ptr<Source>> source = open_file_source(path);
  if (!source.ok()) return source.status();
  std::string text;
  std::array<char, std::size_t{1} << 16> buffer{};
  for (;;) {
    const Result<std::size_t> got = (*source)->read(std::as_writable_bytes(std::span(buffer)));
    if (!got.ok()) return got.status();
    if (*got == 0) return text;
    text.append(buffer.data(), *got);
    if (text.size() > kMost) return invalid_input("'" + path + "' is too large to be a baseline");
  }
}

}  // namespace peakline::cli
