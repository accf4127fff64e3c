// Allocator traces as CSV.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include <peakline/import.h>

#include "import/allocator_history.h"

namespace peakline {
namespace {

constexpr std::size_t kLongestLine = 4096;

// Lines of a source, with their numbers.
class LineReader {
 public:
  explicit LineReader(Source& source) : source_(source), buffer_(std::size_t{64} << 10) {}

  // The next line without its end, or nothing at the end of the file.
  Result<std::optional<std::string_view>> next() {
    line_.clear();
    ++number_;
    for (;;) {
      if (at_ == filled_) {
        const Result<std::size_t> got = source_.read(buffer_);
        if (!got.ok()) return got.status();
        at_ = 0;
        filled_ = *got;
        if (filled_ == 0) {
          if (line_.empty()) return std::optional<std::string_view>();
          return trimmed();
        }
      }
      const char* const begin = reinterpret_cast<const char*>(buffer_.data()) + at_;
      const char* const end = reinterpret_cast<const char*>(buffer_.data()) + filled_;
      const char* const newline = std::find(begin, end, '\n');
      line_.append(begin, newline);
      at_ += static_cast<std::size_t>(newline - begin);
      if (line_.size() > kLongestLine) {
        return invalid_input(
            fmt::format("{}, line {}: longer than {} characters, so this is no "
                        "allocator trace",
                        source_.name(), number_, kLongestLine));
      }
      if (newline != end) {
        ++at_;
        return trimmed();
      }
    }
  }
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }

 private:
  std::optional<std::string_view> trimmed() {
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    return line_;
  }

  Source& source_;
  std::vector<std::byte> buffer_;
  std::size_t at_ = 0;
  std::size_t filled_ = 0;
  std::string line_;
  std::uint64_t number_ = 0;
};

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (;;) {
    const std::size_t comma = line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

template <class T>
bool read_number(std::string_view text, T& value) {
  int base = 10;
  if (text.starts_with("0x")) {
    text.remove_prefix(2);
    base = 16;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc{} && end == text.data() + text.size();
}

// Where the columns are that matter.
struct Columns {
  static constexpr std::array<std::string_view, 4> kNames = {"action", "addr", "size", "stream"};
  std::array<std::size_t, 4> at{};
  std::size_t count = 0;

  Status find(std::string_view header) {
    const std::vector<std::string_view> names = fields_of(header);
    count = names.size();
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      const auto it = std::ranges::find(names, kNames[i]);
      if (it == names.end()) {
        return invalid_input(
            fmt::format("the header has no column '{}': an allocator trace needs "
                        "action,addr,size,stream",
                        kNames[i]));
      }
      at[i] = static_cast<std::size_t>(it - names.begin());
    }
    return {};
  }
};

Status read_entry(const Columns& columns, std::string_view line, HistoryEntry& entry) {
  const std::vector<std::string_view> fields = fields_of(line);
  if (fields.size() != columns.count) {
    return invalid_input(fmt::format("has {} fields instead of {}: is the file cut off?",
                                     fields.size(), columns.count));
  }
  entry.action = fields[columns.at[0]];
  if (!AllocatorHistory::knows(entry.action)) {
    return invalid_input(fmt::format("'{}' is not an action of an allocator trace", entry.action));
  }
  std::uint32_t stream = 0;
  const std::string_view address = fields[columns.at[1]];
  const std::string_view size = fields[columns.at[2]];
  if (!read_number(address, entry.address)) {
    return invalid_input(fmt::format("'{}' is not an address", address));
  }
  if (!read_number(size, entry.size)) return invalid_input(fmt::format("'{}' is not a size", size));
  const std::string_view stream_text = fields[columns.at[3]];
  if (!stream_text.empty() && !read_number(stream_text, stream)) {
    return invalid_input(fmt::format("'{}' is not a stream number", stream_text));
  }
  entry.stream = StreamId(stream);
  return {};
}

Status at_line(const Source& source, std::uint64_t line, const Status& status) {
  if (status.code() == StatusCode::kIo) return status;
  return {status.code(), fmt::format("{}, line {}: {}", source.name(), line, status.message())};
}

}  // namespace

Result<ImportedCounts> import_csv(Source& source, EventSink& sink) {
  LineReader lines(source);
  Columns columns;
  bool has_header = false;
  DeviceInfo info;
  info.name = "cuda:0";
  AllocatorHistory history(sink, sink.device(info), AllocatorConfig{}, false);
  for (;;) {
    const Result<std::optional<std::string_view>> line = lines.next();
    if (!line.ok()) return line.status();
    if (!*line) break;
    if ((*line)->empty() || (*line)->front() == '#') continue;
    Status status;
    if (!has_header) {
      status = columns.find(**line);
      has_header = true;
    } else {
      HistoryEntry entry;
      entry.time = TimeNs(static_cast<std::int64_t>(lines.number()) * 1000);
      status = read_entry(columns, **line, entry);
      if (status.ok()) status = history.on(entry);
    }
    if (!status.ok()) return at_line(source, lines.number(), status);
  }
  if (!has_header) {
    return invalid_input(
        fmt::format("{} is empty: an allocator trace begins with the line "
                    "action,addr,size,stream",
                    source.name()));
  }
  PEAKLINE_RETURN_IF_ERROR(history.finish());
  sink.info("producer", "import");
  sink.info("imported_from", "csv");
  return history.counts();
}

FileKind kind_of_file(std::span<const std::byte> start) noexcept {
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  if (text.starts_with("\x89PEAK")) return FileKind::kRecording;
  if (text.size() >= 2 && text[0] == '\x80' && text[1] >= 2 && text[1] <= 5)
    return FileKind::kPickle;
  if (text.starts_with("(dp") || text.starts_with("(d") || text.starts_with("}q")) {
    return FileKind::kPickle;  // protocols 0 and 1
  }
  const std::string_view line = text.substr(0, text.find('\n'));
  if (line.find("action") != std::string_view::npos || line.starts_with("#")) return FileKind::kCsv;
  return FileKind::kOther;
}

}  // namespace peakline
