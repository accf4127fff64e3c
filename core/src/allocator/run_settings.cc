#include "allocator/run_settings.h"

#include <charconv>

namespace peakline {
namespace {

std::optional<Bytes> size(const RunInfo& info, const std::string& key) {
  const auto found = info.find(key);
  if (found == info.end()) return std::nullopt;
  std::int64_t value = 0;
  const char* const end = found->second.data() + found->second.size();
  const auto [rest, error] = std::from_chars(found->second.data(), end, value);
  if (error != std::errc{} || rest != end || value < 0) return std::nullopt;
  return Bytes(value);
}

}  // namespace

RunSettings RunSettings::of(const RunInfo& info, const std::string& device) {
  RunSettings settings;
  const auto conf = info.find("allocator_conf");
  if (conf == info.end()) return settings;
  settings.conf = conf->second;
  settings.memory = size(info, "memory_limit." + device);
  settings.limit = size(info, "allocator_limit." + device);
  settings.outside = size(info, "outside_allocator." + device).value_or(Bytes{});
  return settings;
}

TorchVersion allocator_release(const RunInfo& info) {
  for (const char* key : {"allocator_torch", "torch"}) {
    const auto found = info.find(key);
    if (found == info.end()) continue;
    const Result<TorchVersion> version = parse_torch_version(found->second);
    if (version.ok()) return *version;
  }
  return {};
}

}  // namespace peakline
