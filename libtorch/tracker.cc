#include "peakline/torch/tracker.h"

#include "libtorch/run.h"
#include "libtorch/seen.h"

namespace peakline {
namespace {

std::shared_ptr<TorchRun> begin(const TrackOptions& options, const torch::nn::Module* model,
                                const torch::optim::Optimizer* optimizer) {
  auto run = TorchRun::start({.path = options.path, .ops = options.ops, .info = {}});
  if (model != nullptr) run->add(*model);
  if (optimizer != nullptr) run->add(*optimizer);
  run->watch();
  return run;
}

}  // namespace

Tracker::Tracker(const TrackOptions& options) : run_(begin(options, nullptr, nullptr)) {}
Tracker::Tracker(const torch::nn::Module& model, const TrackOptions& options)
    : run_(begin(options, &model, nullptr)) {}
Tracker::Tracker(const torch::nn::Module& model, const torch::optim::Optimizer& optimizer,
                 const TrackOptions& options)
    : run_(begin(options, &model, &optimizer)) {}

Tracker::~Tracker() {
  try {
    stop();
  } catch (const std::exception&) {
  }
}

void Tracker::stop() { run_->stop(); }
Summary Tracker::summary() const { return run_->summary(); }
void Tracker::save(const std::string& path) const { run_->save(path); }
std::string Tracker::fault() const { return run_->fault(); }
std::uint64_t Tracker::steps() const noexcept { return run_->steps(); }
bool Tracker::sees_torch_modules() noexcept { return peakline::sees_torch_modules(); }

}  // namespace peakline
