#include <mutex>

#include <peakline/conv_planner.h>

#include "planner_client/child.h"
#include "planner_client/lines.h"

namespace peakline {
namespace {

class ProcessPlanner final : public ConvPlanner {
 public:
  ProcessPlanner(PlannerFiles files, const DeviceProfile& gpu)
      : files_(std::move(files)), device_(planner_client::device_line(gpu)) {}

  std::optional<ConvPlan> plan(const ConvQuery& query) override {
    const std::lock_guard lock(mutex_);
    if (status_.state == State::kWorks && !child_.is_ours()) {
      child_.stop();
      status_ = {};
    }
    if (status_.state == State::kNotAsked) start();
    if (status_.state != State::kWorks) return std::nullopt;
    const auto line = ask(query);
    if (line && line->starts_with("none ")) return std::nullopt;
    if (auto plan = line ? planner_client::parse_plan(*line) : std::nullopt) return plan;
    fail(line ? "it answered what is no plan" : "it ended when it was asked");
    return std::nullopt;
  }

  PlannerStatus status() override {
    const std::lock_guard lock(mutex_);
    return status_;
  }

  void close() override {
    const std::lock_guard lock(mutex_);
    child_.stop();
    if (status_.state != State::kFailed) status_.state = State::kClosed;
  }

 private:
  using State = PlannerStatus::State;

  void fail(std::string problem) {
    child_.stop();
    status_.state = State::kFailed;
    status_.problem = std::move(problem);
  }

  void start() {
    constexpr std::string_view kRefusal = "none ";
    if (!child_.start(files_.program, files_.cudnn_folder)) return fail("it cannot be started");
    // One that ended at once may have said why before it read anything.
    static_cast<void>(child_.write(device_));
    const auto line = child_.read_line();
    if (!line) return fail("it ended as soon as it was started");
    const auto version = planner_client::parse_greeting(*line);
    if (!version) {
      return fail(line->starts_with(kRefusal) ? line->substr(kRefusal.size())
                                              : "it does not greet as a planner does");
    }
    status_ = {State::kWorks, *version, ""};
  }

  std::optional<std::string> ask(const ConvQuery& query) {
    if (!child_.write(planner_client::request_line(query))) return std::nullopt;
    return child_.read_line();
  }

  PlannerFiles files_;
  std::string device_;
  std::mutex mutex_;
  planner_client::Child child_;
  PlannerStatus status_;
};

}  // namespace

std::unique_ptr<ConvPlanner> planner_process(PlannerFiles files, const DeviceProfile& gpu) {
  return std::make_unique<ProcessPlanner>(std::move(files), gpu);
}

}  // namespace peakline
