// What held the memory at a recording's peak, module by module, and what another allocator setting
// would have reserved:
//   peak RUN.peak [SETTINGS]        for example: peak run.peak expandable_segments:True
#include <cstdio>

#include <peakline/simulate.h>
#include <peakline/summary.h>

int fail(const peakline::Status& status) {
  std::fprintf(stderr, "peak: %s\n", status.message().c_str());
  return 2;
}

int main(int argc, char** argv) {
  if (argc < 2) return fail(peakline::invalid_input("which recording? peak RUN.peak [SETTINGS]"));
  auto file = peakline::open_file_source(argv[1]);
  if (!file.ok()) return fail(file.status());
  auto reader = peakline::TraceReader::open(std::move(*file));
  if (!reader.ok()) return fail(reader.status());
  const auto summary = peakline::summarize(*reader);
  if (!summary.ok()) return fail(summary.status());
  const peakline::DeviceSummary* device = summary->main_device();
  if (device == nullptr) return fail(peakline::invalid_input("nothing was allocated in this run"));

  std::printf("%-40s %s\n", device->name.c_str(), format_size(device->peak_allocated).c_str());
  for (const peakline::ModuleRow& module : device->modules) {
    std::printf("  %-38s %s\n", module.path.c_str(), format_size(module.peak).c_str());
  }
  const char* conf = argc > 2 ? argv[2] : "expandable_segments:True";
  const auto other = peakline::simulate_file(argv[1], {.conf = conf, .device = device->name});
  if (!other.ok()) return fail(other.status());
  const std::string reserved = format_size(other->outcome.peak_reserved);
  std::printf("%-40s %s reserved\n", conf, reserved.c_str());
}
