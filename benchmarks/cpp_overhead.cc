// What tracking costs a C++ training program: bare and tracked steps of examples/cpp/gpt.h, in turns, so
// that noise hits both alike.
//   cpp_overhead [ROUNDS] [STEPS a round]
//
// A round times STEPS bare and STEPS tracked steps, in either order, and gives one ratio. Told are the
// median of the ratios and the 95% interval of that median (by ranks), on the wall's clock and in
// processor time, which other programs on the machine disturb less; the second counts the thread that
// writes the recording, too.
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

class Training {
 public:
  void step() {
    optimizer_.zero_grad();
    const auto logits = model_(inputs_);
    torch::nn::functional::cross_entropy(logits.view({-1, config_.vocabulary}), targets_)
        .backward();
    optimizer_.step();
  }
  Cost steps(int count) {
    const Cost begin{now(CLOCK_MONOTONIC), now(CLOCK_PROCESS_CPUTIME_ID)};
    for (int i = 0; i < count; ++i) step();
    return {now(CLOCK_MONOTONIC) - begin.wall, now(CLOCK_PROCESS_CPUTIME_ID) - begin.processor};
  }
  // The first two steps are watched op by op; a run is long, and those that follow are its price.
  Cost tracked_steps(int count) {
    peakline::Tracker tracker(*model_, optimizer_);
    steps(3);
    return steps(count);
  }

 private:
  gpt::Config config_;
  gpt::GPT model_{config_};
  torch::optim::AdamW optimizer_{model_->parameters()};
  torch::Tensor inputs_ = torch::randint(config_.vocabulary, {2, config_.length}, torch::kLong);
  torch::Tensor targets_ = torch::randint(config_.vocabulary, {2 * config_.length}, torch::kLong);
};

void tell(const char* clock, std::vector<double> ratios) {
  std::sort(ratios.begin(), ratios.end());
  const auto n = static_cast<double>(ratios.size());
  const double reach = 1.96 * std::sqrt(n) / 2;  // ranks around the middle
  const auto at = [&](double rank) {
    return ratios[static_cast<std::size_t>(std::clamp(rank, 0.0, n - 1))];
  };
  std::printf("%-15s %.3fx of bare (95%%: %.3f to %.3f)\n", clock, at(std::floor(n / 2)),
              at(std::floor(n / 2 - reach)), at(std::ceil(n / 2 + reach)));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  const int count = argc > 2 ? std::atoi(argv[2]) : 5;
  if (rounds < 6 || count < 1) {
    std::fprintf(stderr, "cpp_overhead [ROUNDS, 6 or more] [STEPS, 1 or more]\n");
    return 2;
  }
  torch::set_num_threads(1);
  Training training;
  training.steps(2);
  std::vector<double> wall;
  std::vector<double> processor;
  for (int round = 0; round < rounds; ++round) {
    Cost bare = round % 2 == 0 ? training.steps(count) : Cost{};
    const Cost tracked = training.tracked_steps(count);
    if (round % 2 != 0) bare = training.steps(count);
    wall.push_back(tracked.wall / bare.wall);
    processor.push_back(tracked.processor / bare.processor);
  }
  std::printf("GPT, 4 layers, width 256, AdamW, one thread: %d rounds of %d steps each\n", rounds,
              count);
  tell("wall clock", wall);
  tell("processor time", processor);
  return 0;
}
