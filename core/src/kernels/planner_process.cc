// The planner's process, and the lines that are exchanged with it (planner/request.h).
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>

#include <peakline/conv_planner.h>

namespace peakline {
namespace {

// Opening cuDNN takes a tenth of a second on an idle machine.
constexpr int kPatienceMs = 60'000;

// Profilers and timers send signals at any time.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// A child whose input and output are one socket.
class Child {
 public:
  Child() = default;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { stop(); }

  bool start(const PlannerFiles& files) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    std::string program = files.program;
    std::string folder = files.cudnn_folder;
    char* arguments[] = {program.data(), folder.data(), nullptr};
    const int failed =
        posix_spawn(&process_, program.c_str(), &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    socket_ = ends[0];
    owner_ = getpid();
    if (failed != 0) process_ = -1;
    return failed == 0;
  }

  // False in a fork of the process that started it: answers to one would reach the other.
  [[nodiscard]] bool is_ours() const { return owner_ == getpid(); }

  bool write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t sent =
          uninterrupted([&] { return send(socket_, text.data(), text.size(), MSG_NOSIGNAL); });
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  std::optional<std::string> read_line() {
    while (true) {
      const std::size_t end = buffer_.find('\n');
      if (end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return line;
      }
      pollfd waiting{socket_, POLLIN, 0};
      if (uninterrupted([&] { return poll(&waiting, 1, kPatienceMs); }) <= 0) return std::nullopt;
      char chunk[4096];
      const ssize_t got = uninterrupted([&] { return recv(socket_, chunk, sizeof chunk, 0); });
      if (got <= 0) return std::nullopt;
      buffer_.append(chunk, static_cast<std::size_t>(got));
    }
  }

  void stop() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
    buffer_.clear();
    if (process_ > 0 && is_ours()) {
      kill(process_, SIGKILL);
      uninterrupted([&] { return waitpid(process_, nullptr, 0); });
    }
    process_ = -1;
  }

 private:
  int socket_ = -1;
  pid_t process_ = -1;
  pid_t owner_ = -1;
  std::string buffer_;
};

// cuDNN's description of a device. It plans by the compute capability, and by the sizes that kernels
// must fit into; clocks and names changed nothing in what was tried.
std::string device_json(const DeviceProfile& gpu) {
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
  return json.dump();
}

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

std::string request(const ConvQuery& query) {
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

// The value of `key`, which is taken out.
std::optional<std::int64_t> take(std::map<std::string, std::int64_t>& values, const char* key) {
  const auto node = values.extract(key);
  return node.empty() ? std::nullopt : std::optional(node.mapped());
}

// "plan engine=62 workspace=131 unsplit=131 TILE_SIZE=0 …"
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

class ProcessPlanner final : public ConvPlanner {
 public:
  ProcessPlanner(PlannerFiles files, const DeviceProfile& gpu)
      : files_(std::move(files)), device_(device_json(gpu)) {}

  std::optional<ConvPlan> plan(const ConvQuery& query) override {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kWorks && !child_.is_ours()) {
      child_.stop();
      state_ = State::kNotStarted;
    }
    if (state_ == State::kNotStarted) state_ = start() ? State::kWorks : State::kEnded;
    if (state_ == State::kWorks) {
      const auto line = ask(query);
      if (line && line->starts_with("none ")) return std::nullopt;
      if (auto plan = line ? parse_plan(*line) : std::nullopt) return plan;
    }
    give_up();
    return std::nullopt;
  }

  void close() override {
    const std::lock_guard lock(mutex_);
    give_up();
  }

 private:
  enum class State : std::uint8_t { kNotStarted, kWorks, kEnded };

  void give_up() {
    child_.stop();
    state_ = State::kEnded;
  }

  bool start() {
    if (!child_.start(files_) || !child_.write(device_ + '\n')) return false;
    const auto greeting = child_.read_line();
    return greeting && greeting->starts_with("cudnn ");
  }

  std::optional<std::string> ask(const ConvQuery& query) {
    if (!child_.write(request(query))) return std::nullopt;
    return child_.read_line();
  }

  PlannerFiles files_;
  std::string device_;
  std::mutex mutex_;
  Child child_;
  State state_ = State::kNotStarted;
};

}  // namespace

std::unique_ptr<ConvPlanner> planner_process(PlannerFiles files, const DeviceProfile& gpu) {
  return std::make_unique<ProcessPlanner>(std::move(files), gpu);
}

}  // namespace peakline
