// What tracking costs a C++ training program: bare and tracked steps of examples/cpp/gpt.h, in turns, so
// that noise hits both alike.
//   cpp_overhead [PAIRS] [STEPS of a stretch]
//
// A stretch of steps is worth its middle step. A tracked one is compared with the bare ones around it,
// and a bare one with the bare ones around that: the second should be 1, and says how far the machine
// lets the first be trusted. Told are the median of these ratios and the 95% interval of that median (by
// ranks), on the wall's clock and in processor time; the latter counts the thread that writes the
// recording, too.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "../examples/cpp/gpt.h"

namespace {

struct Cost {
  double wall = 0;
  double processor = 0;
};

double now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double middle(std::vector<double> values) {
  const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), half, values.end());
  return *half;
}

class Training {
 public:
  void step() {
    optimizer_.zero_grad();
    const auto logits = model_(inputs_);
    torch::nn::functional::cross_entropy(logits.view({-1, config_.vocabulary}), targets_)
        .backward();
    optimizer_.step();
  }
  Cost stretch(int count) {
    std::vector<double> wall;
    std::vector<double> processor;
    for (int i = 0; i < count; ++i) {
      const Cost begin{now(CLOCK_MONOTONIC), now(CLOCK_PROCESS_CPUTIME_ID)};
      step();
      wall.push_back(now(CLOCK_MONOTONIC) - begin.wall);
      processor.push_back(now(CLOCK_PROCESS_CPUTIME_ID) - begin.processor);
    }
    return {middle(std::move(wall)), middle(std::move(processor))};
  }
  // Entering and the first steps, which are watched op by op, are left out: a run pays for them once.
  Cost tracked_stretch(int count) {
    peakline::Tracker tracker(*model_, optimizer_);
    for (int i = 0; i < 3; ++i) step();
    return stretch(count);
  }

 private:
  gpt::Config config_;
  gpt::GPT model_{config_};
  torch::optim::AdamW optimizer_{model_->parameters()};
  torch::Tensor inputs_ = torch::randint(config_.vocabulary, {2, config_.length}, torch::kLong);
  torch::Tensor targets_ = torch::randint(config_.vocabulary, {2 * config_.length}, torch::kLong);
};

void tell(const char* what, std::vector<double> ratios) {
  std::sort(ratios.begin(), ratios.end());
  const auto n = static_cast<double>(ratios.size());
  const double reach = 1.96 * std::sqrt(n) / 2;  // ranks around the middle
  const auto at = [&](double rank) {
    return ratios[static_cast<std::size_t>(std::clamp(rank, 0.0, n - 1))];
  };
  std::printf("%-28s %.3fx (95%%: %.3f to %.3f; quartiles %.3f to %.3f)\n", what,
              at(std::floor(n / 2)), at(std::floor(n / 2 - reach)), at(std::ceil(n / 2 + reach)),
              at(std::floor(n / 4)), at(std::floor(3 * n / 4)));
}

using Clock = double Cost::*;

// `bare` has one stretch more than `tracked`: before the first, after the last and between any two.
void compare(const char* clock, Clock in, const std::vector<Cost>& bare,
             const std::vector<Cost>& tracked) {
  std::vector<double> ratios;
  std::vector<double> none;
  for (std::size_t i = 0; i < tracked.size(); ++i) {
    ratios.push_back(2 * tracked[i].*in / (bare[i].*in + bare[i + 1].*in));
    if (i > 0) none.push_back(2 * bare[i].*in / (bare[i - 1].*in + bare[i + 1].*in));
  }
  std::printf("%s\n", clock);
  tell("  tracked", std::move(ratios));
  tell("  no tracker", std::move(none));
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 60;
  const int count = argc > 2 ? std::atoi(argv[2]) : 5;
  if (pairs < 8 || count < 1) {
    std::fprintf(stderr, "cpp_overhead [PAIRS, 8 or more] [STEPS, 1 or more]\n");
    return 2;
  }
  torch::set_num_threads(1);
  Training training;
  training.stretch(3);
  std::vector<Cost> bare{training.stretch(count)};
  std::vector<Cost> tracked;
  std::vector<double> steps;
  for (int pair = 0; pair < pairs; ++pair) {
    tracked.push_back(training.tracked_stretch(count));
    bare.push_back(training.stretch(count));
    steps.push_back(bare.back().wall);
  }
  std::printf("%d pairs of stretches of %d steps; a bare step takes %.1f ms\n", pairs, count,
              1000 * middle(steps));
  compare("wall clock", &Cost::wall, bare, tracked);
  compare("processor time", &Cost::processor, bare, tracked);
}
