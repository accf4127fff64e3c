#include "planner_client/lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

namespace peakline::planner_client {
namespace {

const char* word(ConvPass pass) {
  switch (pass) {
    case ConvPass::kInputGradient:
      return "input_gradient";
    case ConvPass::kWeightGradient:
      return "weight_gradient";
    default:
      return "forward";
  }
}

const char* word(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat64:
      return "float64";
    default:
      return "float32";
  }
}

void add(std::string& line, std::string_view key, const std::vector<std::int64_t>& values) {
  line.append(" ").append(key).append("=");
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) line += ',';
    line += std::to_string(values[i]);
  }
}

// The value of `key`, which is taken out.
std::optional<std::int64_t> take(std::map<std::string, std::int64_t>& values, const char* key) {
  const auto node = values.extract(key);
  return node.empty() ? std::nullopt : std::optional(node.mapped());
}

}  // namespace

// It plans by the compute capability, and by the sizes that kernels
// must fit into; clocks and names changed nothing in what was tried.
std::string device_line(const DeviceProfile& gpu) {
  const nlohmann::json json = {
      {"maxGridSize", {2147483647, 65535, 65535}},
      {"maxBlockSize", {1024, 1024, 64}},
      {"regsPerBlock", gpu.registers_per_sm},
      {"multiProcessorCount", gpu.sm_count},
      {"warpSize", gpu.warp_size},
      {"maxSharedMemoryPerBlock", gpu.shared_memory_per_block.raw()},
      {"maxSharedMemoryPerBlockOptin", gpu.shared_memory_per_block_opt_in.raw()},
      {"reservedSharedMemoryPerBlock",
       (gpu.shared_memory_per_sm - gpu.shared_memory_per_block_opt_in).raw()},
      {"maxRegistersPerSM", gpu.registers_per_sm},
      {"maxCtasPerSM", gpu.max_threads_per_sm >= 2048 ? 32 : 16},
      {"maxThreadsPerBlock", gpu.max_threads_per_block},
      {"maxThreadsPerSM", gpu.max_threads_per_sm},
      {"pciDeviceId", 0},
      {"isTccDriver", 0},
      {"supportCoopLaunch", 1},
      {"totalGlobalMem", gpu.total_memory.raw()},
      {"smClockRateKHz", 1'980'000},
      {"memClockRateKHz", 3'201'000},
      {"l2CacheSize", gpu.l2_cache.raw()},
      {"cudaDeviceId", 0},
      {"deviceVer", gpu.major * 100 + gpu.minor * 10},
      {"driverVer", 13000},
      {"deviceName", gpu.name},
  };
  return json.dump() + '\n';
}

std::string request_line(const ConvQuery& query) {
  std::string line = word(query.pass);
  line.append(" ").append(word(query.dtype));
  line.append(query.channels_last ? " channels_last" : " contiguous");
  add(line, "deterministic", {query.deterministic ? 1 : 0});
  add(line, "tf32", {query.allow_tf32 ? 1 : 0});
  add(line, "input", query.input);
  add(line, "weight", query.weight);
  add(line, "output", query.output);
  add(line, "padding", query.padding);
  add(line, "stride", query.stride);
  add(line, "dilation", query.dilation);
  return line + '\n';
}

std::optional<std::string> parse_greeting(std::string_view line) {
  constexpr std::string_view kStart = "cudnn ";
  if (!line.starts_with(kStart)) return std::nullopt;
  const char* end = line.data() + line.size();
  int version = 0;
  const auto [read, error] = std::from_chars(line.data() + kStart.size(), end, version);
  if (error != std::errc() || read != end || version < 0) return std::nullopt;
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::optional<ConvPlan> parse_plan(std::string_view line) {
  constexpr std::string_view kStart = "plan ";
  if (!line.starts_with(kStart)) return std::nullopt;
  ConvPlan plan;
  for (std::string_view rest = line.substr(kStart.size()); !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const char* end = item.data() + item.size();
    std::int64_t value = 0;
    const auto [read, error] = std::from_chars(item.data() + equals + 1, end, value);
    if (error != std::errc() || read != end) return std::nullopt;
    plan.knobs[std::string(item.substr(0, equals))] = value;
  }
  const auto engine = take(plan.knobs, "engine");
  const auto workspace = take(plan.knobs, "workspace");
  const auto unsplit = take(plan.knobs, "unsplit");
  if (!engine || !workspace || !unsplit || *workspace < 0 || *unsplit < 0) return std::nullopt;
  plan.engine = *engine;
  plan.workspace = *workspace;
  plan.unsplit_workspace = *unsplit;
  return plan;
}

}  // namespace peakline::planner_client
