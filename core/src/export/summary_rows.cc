#include "export/rows.h"

namespace peakline {
namespace {

void recordings(const Summary& summary, std::int64_t rank, std::string_view file,
                TableWriter& writer) {
  Row row;
  row.number(rank).text(file).count(summary.events).count(summary.steps_completed);
  row.time(summary.duration).write(writer);
}

void info(const Summary& summary, std::int64_t rank, TableWriter& writer) {
  Row row;
  for (const auto& [key, value] : summary.info)
    row.number(rank).text(key).text(value).write(writer);
}

void devices(const DeviceSummary& device, std::int64_t rank, TableWriter& writer) {
  Row row;
  row.number(rank).text(device.name).text(device.model).bytes(device.memory_limit);
  row.count(device.segments).count(device.retries).count(device.ooms);
  row.bytes(device.peak_allocated).bytes(device.peak_reserved).bytes(device.allocated_at_end);
  row.count(device.peak_event).time(device.peak_time).count(device.peak_step);
  row.text(device.peak_phase).text(device.peak_op).text(device.peak_module).write(writer);
}

void categories(const DeviceSummary& device, std::int64_t rank, TableWriter& writer) {
  Row row;
  for (const NamedBytes& held : device.by_subcategory) {
    const std::string_view label = held.name;
    row.number(rank).text(device.name).text(label.substr(0, label.find(" / "))).text(label);
    row.bytes(held.bytes).write(writer);
  }
}

void modules(const DeviceSummary& device, std::int64_t rank, TableWriter& writer) {
  Row row;
  for (const ModuleRow& module : device.modules) {
    row.number(rank).text(device.name).text(module.path).text(module.type).count(module.depth);
    row.count(module.forward_calls).bytes(module.peak).bytes(module.own);
    row.bytes(module.highest_while_running).write(writer);
  }
}

void ops(const DeviceSummary& device, std::int64_t rank, TableWriter& writer) {
  Row row;
  for (const OpRow& op : device.ops) {
    row.number(rank).text(device.name).text(op.name).count(op.calls).count(op.allocations);
    row.bytes(op.at_peak).bytes(op.allocated).bytes(op.largest).write(writer);
  }
}

void steps(const Summary& summary, const DeviceSummary& device, std::int64_t rank,
           TableWriter& writer) {
  Row row;
  for (std::size_t i = 0; i < device.steps.size(); ++i) {
    const StepRow& step = device.steps[i];
    row.number(rank).text(device.name).count(i + 1).number(i < summary.steps_completed ? 1 : 0);
    row.bytes(step.peak_allocated).bytes(step.peak_reserved).count(step.peak_event).write(writer);
  }
}

}  // namespace

void write_summary_table(std::string_view table, const Summary& summary, std::int64_t rank,
                         std::string_view file, TableWriter& writer) {
  if (table == "recordings") return recordings(summary, rank, file, writer);
  if (table == "info") return info(summary, rank, writer);
  for (const DeviceSummary& device : summary.devices) {
    if (table == "devices") devices(device, rank, writer);
    if (table == "categories") categories(device, rank, writer);
    if (table == "modules") modules(device, rank, writer);
    if (table == "ops") ops(device, rank, writer);
    if (table == "steps") steps(summary, device, rank, writer);
  }
}

}  // namespace peakline
