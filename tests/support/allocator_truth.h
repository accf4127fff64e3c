// Recorded behaviour of the real allocator, and how to compare with it.
#pragma once

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <peakline/allocator.h>

#include "zst_file.h"

namespace peakline::testing {

inline constexpr TorchVersion kRecordedTorch{2, 11};
inline constexpr Bytes kH200{150109880320};
inline constexpr Bytes kH200Context{552402944};  // in use before the first segment

// A row of a trace or script; `comment` holds the text of '#' lines instead.
struct TruthRow {
  std::string action;
  std::uint64_t address = 0;
  std::int64_t size = 0;
  std::uint32_t stream = 0;
  std::string pool;
  std::string comment;
};

inline std::vector<TruthRow> read_rows(const std::string& name) {
  std::vector<TruthRow> rows;
  for (const std::string& line : lines_of(read_zst(name))) {
    if (line.starts_with("action,")) continue;
    TruthRow& row = rows.emplace_back();
    if (line.starts_with("#")) {
      row.comment = line.substr(2);
      continue;
    }
    const std::vector<std::string> fields = split(line, ',');
    row.action = fields.at(0);
    row.address = std::stoull(fields.at(1));
    row.size = std::stoll(fields.at(2));
    row.stream = static_cast<std::uint32_t>(std::stoul(fields.at(3)));
    if (fields.size() > 4) row.pool = fields[4];
  }
  return rows;
}

inline std::optional<SegmentChange::Kind> kind_of(const std::string& action) {
  if (action == "segment_alloc") return SegmentChange::Kind::kAlloc;
  if (action == "segment_free") return SegmentChange::Kind::kFree;
  if (action == "segment_map") return SegmentChange::Kind::kMap;
  if (action == "segment_unmap") return SegmentChange::Kind::kUnmap;
  return std::nullopt;
}

inline std::vector<SegmentChange> changes_of(const std::vector<TruthRow>& rows) {
  std::vector<SegmentChange> changes;
  for (const TruthRow& row : rows) {
    if (const auto kind = kind_of(row.action)) {
      changes.push_back(
          {*kind, Address(row.address), Bytes(row.size), StreamId(row.stream), PoolId{}});
    }
  }
  return changes;
}

// torch walks its cache by stream handle; the first run of returned segments shows that order.
inline std::vector<StreamId> stream_order_of(const std::vector<SegmentChange>& changes) {
  std::vector<StreamId> order;
  bool in_run = false;
  for (const SegmentChange& change : changes) {
    const bool returned =
        change.kind == SegmentChange::Kind::kFree || change.kind == SegmentChange::Kind::kUnmap;
    if (in_run && !returned) break;
    in_run = returned;
    if (returned && std::ranges::find(order, change.stream) == order.end()) {
      order.push_back(change.stream);
    }
  }
  return order;
}

inline std::string to_text(const SegmentChange& change, bool with_address) {
  static constexpr const char* kNames[] = {"alloc", "free", "map", "unmap"};
  return fmt::format("{} {} stream {}{}", kNames[static_cast<int>(change.kind)], change.bytes.raw(),
                     change.stream.raw(),
                     with_address ? fmt::format(" at {:#x}", change.address.raw()) : "");
}

// Where the simulated changes first differ from the real ones; empty when they are the same.
inline std::string first_difference(const std::vector<SegmentChange>& simulated,
                                    const std::vector<SegmentChange>& real, bool with_address) {
  const auto text = [&](const std::vector<SegmentChange>& changes, std::size_t i) {
    return i < changes.size() ? to_text(changes[i], with_address) : std::string("nothing");
  };
  for (std::size_t i = 0; i < std::max(simulated.size(), real.size()); ++i) {
    if (text(simulated, i) != text(real, i)) {
      return fmt::format("change {} of {}: {} instead of {}", i, real.size(), text(simulated, i),
                         text(real, i));
    }
  }
  return {};
}

inline std::int64_t peak_reserved_of(const std::vector<SegmentChange>& changes) {
  std::int64_t reserved = 0;
  std::int64_t peak = 0;
  for (const SegmentChange& change : changes) {
    const bool taken =
        change.kind == SegmentChange::Kind::kAlloc || change.kind == SegmentChange::Kind::kMap;
    reserved += taken ? change.bytes.raw() : -change.bytes.raw();
    peak = std::max(peak, reserved);
  }
  return peak;
}

// Names, simulated and real values of the statistics that differ; empty when all agree.
inline std::string differences(const AllocatorStats& stats, const std::vector<std::string>& keys,
                               const std::vector<std::int64_t>& real) {
  std::map<std::string, std::int64_t> simulated;
  for (auto& [name, value] : stats.named(kRecordedTorch)) simulated[name] = value;
  std::string text;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto it = simulated.find(keys[i]);
    if (it == simulated.end()) {
      text += keys[i] + " is missing; ";
    } else if (it->second != real.at(i)) {
      text += fmt::format("{}: {} instead of {}; ", keys[i], it->second, real[i]);
    }
  }
  return text;
}

}  // namespace peakline::testing
