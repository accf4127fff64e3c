#include "export/perfetto_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/utf8.h"

namespace peakline {
namespace {

using Json = nlohmann::json;

struct Span {
  std::int64_t start = 0;  // nanoseconds from the step's beginning
  std::int64_t end = 0;
  std::size_t kind = 0;
};

// Starts and lengths are rounded to this by themselves, so neighbours may seem to overlap by it.
constexpr std::int64_t kRoundingNs = 200;
constexpr double kLongestUs = 1e12;  // eleven days: no step of a program is longer

std::optional<Span> read_span(const Json& row, std::size_t kinds) {
  if (!row.is_array() || row.size() != 3) return std::nullopt;
  for (const Json& value : row) {
    if (!value.is_number()) return std::nullopt;
  }
  const double start = row[0].get<double>();
  const double length = row[1].get<double>();
  const double kind = row[2].get<double>();
  const bool is_time = start >= 0 && length >= 0 && start <= kLongestUs && length <= kLongestUs;
  if (!is_time || !(kind >= 0) || kind >= static_cast<double>(kinds)) return std::nullopt;
  return Span{std::llround(1e3 * start), std::llround(1e3 * (start + length)),
              static_cast<std::size_t>(kind)};
}

// Slices of one track must not overlap; what runs beside gets another track of the same name.
class Lanes {
 public:
  Lanes(PerfettoWriter& writer, TrackId process, std::string name, TimeNs begin)
      : writer_(writer), process_(process), name_(std::move(name)), begin_(begin) {}

  void add(Span span, std::string_view kind) {
    Lane& lane = free_lane(span.start);
    span.start = std::max(span.start, lane.end);
    lane.end = std::max(span.end, span.start);
    writer_.slice_begin(lane.track, at(span.start), kind);
    writer_.slice_end(lane.track, at(lane.end));
  }

 private:
  struct Lane {
    TrackId track = 0;
    std::int64_t end = 0;
  };

  Lane& free_lane(std::int64_t start) {
    for (Lane& lane : lanes_) {
      if (lane.end <= start + kRoundingNs) return lane;
    }
    return lanes_.emplace_back(Lane{writer_.track(process_, name_), 0});
  }
  [[nodiscard]] TimeNs at(std::int64_t ns) const { return TimeNs(begin_.raw() + ns); }

  PerfettoWriter& writer_;
  TrackId process_;
  std::string name_;
  TimeNs begin_;
  std::vector<Lane> lanes_;
};

void write_stream(PerfettoWriter& writer, TrackId process, const Json& stream,
                  const std::vector<std::string>& kinds, TimeNs begin) {
  if (!stream.is_object() || !stream.contains("spans") || !stream["spans"].is_array()) return;
  std::vector<Span> spans;
  for (const Json& row : stream["spans"]) {
    if (const std::optional<Span> span = read_span(row, kinds.size())) spans.push_back(*span);
  }
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.start < b.start; });
  const Json device = stream.value("device", Json());
  const Json name = stream.value("name", Json());
  std::string scratch;
  Lanes lanes(writer, process,
              fmt::format("cuda:{} {}, by the clock",
                          device.is_number_integer() ? device.get<std::int64_t>() : 0,
                          name.is_string() ? valid_utf8(name.get_ref<const std::string&>(), scratch)
                                           : std::string_view("stream")),
              begin);
  for (const Span& span : spans) lanes.add(span, kinds[span.kind]);
}

}  // namespace

void write_streams(PerfettoWriter& writer, TrackId process, std::string_view streams,
                   TimeNs begin) {
  const Json fact = Json::parse(streams, nullptr, false);
  if (!fact.is_object() || !fact.contains("kinds") || !fact.contains("streams")) return;
  if (!fact["kinds"].is_array() || !fact["streams"].is_array()) return;
  std::vector<std::string> kinds;
  for (const Json& kind : fact["kinds"]) {
    kinds.push_back(kind.is_string() ? kind.get<std::string>() : "kernel");
  }
  for (const Json& stream : fact["streams"]) write_stream(writer, process, stream, kinds, begin);
}

}  // namespace peakline
