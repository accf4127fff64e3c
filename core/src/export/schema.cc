#include <fmt/format.h>

#include <algorithm>
#include <array>

#include <peakline/export.h>

#include "export/rows.h"

namespace peakline {
namespace {

constexpr Column integer(std::string_view name) { return {name, Column::Type::kInteger}; }
constexpr Column text(std::string_view name) { return {name, Column::Type::kText}; }

constexpr std::array kRecordings{integer("rank"), text("file"), integer("events"), integer("steps"),
                                 integer("duration_ns")};
constexpr std::array kInfo{integer("rank"), text("key"), text("value")};
constexpr std::array kDevices{integer("rank"),
                              text("device"),
                              text("model"),
                              integer("memory_limit"),
                              integer("segments"),
                              integer("retries"),
                              integer("ooms"),
                              integer("peak_allocated"),
                              integer("peak_reserved"),
                              integer("allocated_at_end"),
                              integer("peak_event"),
                              integer("peak_ns"),
                              integer("peak_step"),
                              text("peak_phase"),
                              text("peak_op"),
                              text("peak_module")};
constexpr std::array kCategories{integer("rank"), text("device"), text("category"),
                                 text("subcategory"), integer("bytes")};
constexpr std::array kModules{integer("rank"), text("device"),   text("module"),
                              text("type"),    integer("depth"), integer("forward_calls"),
                              integer("peak"), integer("own"),   integer("highest_while_running")};
constexpr std::array kOps{integer("rank"),      text("device"),         text("op"),
                          integer("calls"),     integer("allocations"), integer("at_peak"),
                          integer("allocated"), integer("largest")};
constexpr std::array kSteps{
    integer("rank"),           text("device"),           integer("step"),      integer("complete"),
    integer("peak_allocated"), integer("peak_reserved"), integer("peak_event")};
constexpr std::array kBlocks{
    integer("rank"),     integer("block"),       text("device"),       integer("stream"),
    integer("address"),  integer("bytes"),       integer("requested"), text("category"),
    text("subcategory"), text("module"),         text("op"),           text("name"),
    text("phase"),       integer("step"),        text("certainty"),    integer("birth_event"),
    integer("birth_ns"), integer("death_event"), integer("death_ns"),  integer("at_peak")};
constexpr std::array kEvents{integer("rank"),  integer("event"),     integer("time_ns"),
                             text("thread"),   text("kind"),         integer("block"),
                             text("device"),   integer("stream"),    integer("address"),
                             integer("bytes"), integer("requested"), text("op"),
                             text("module"),   text("phase"),        text("category"),
                             text("name"),     text("detail")};
static_assert(kBlocks.size() <= Row::kMost && kEvents.size() <= Row::kMost);

constexpr std::array<TableSchema, 9> kSchemas{{{"recordings", kRecordings},
                                               {"info", kInfo},
                                               {"devices", kDevices},
                                               {"categories", kCategories},
                                               {"modules", kModules},
                                               {"ops", kOps},
                                               {"steps", kSteps},
                                               {"blocks", kBlocks},
                                               {"events", kEvents}}};

}  // namespace

std::span<const TableSchema> export_schemas() { return kSchemas; }

const TableSchema& schema_of(std::string_view table) {
  return *std::ranges::find(kSchemas, table, &TableSchema::name);
}

Result<std::vector<std::string>> choose_tables(std::span<const std::string> names) {
  for (const std::string& name : names) {
    if (std::ranges::find(kSchemas, name, &TableSchema::name) != kSchemas.end()) continue;
    std::string known;
    for (const TableSchema& table : kSchemas) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", table.name);
    }
    return invalid_input(fmt::format("there is no table '{}'; there are {}", name, known));
  }
  std::vector<std::string> chosen;
  for (const TableSchema& table : kSchemas) {
    if (names.empty() || std::ranges::find(names, table.name) != names.end()) {
      chosen.emplace_back(table.name);
    }
  }
  return chosen;
}

}  // namespace peakline
