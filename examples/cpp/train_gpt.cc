// Trains a small GPT, tracked or on a GPU that is not there:
//   train_gpt [--optimizer sgd|adamw] [--dtype float32|bfloat16] [--steps N] [--batch N] [--width N]
//             [--layers N] [--track RUN.peak] [--gpu NAME [--memory SIZE] [--record RUN.peak]] [--time]
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "gpt.h"

namespace {

using Flags = std::map<std::string, std::string>;

Flags parse(int argc, char** argv) {
  Flags flags{{"--optimizer", "adamw"}, {"--dtype", "float32"}, {"--steps", "3"},
              {"--batch", "8"},         {"--width", "256"},     {"--layers", "4"}};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    TORCH_CHECK(name.starts_with("--"), "what is ", name, "? flags begin with --");
    const bool alone = name == "--time";
    TORCH_CHECK(alone || i + 1 < argc, name, " wants a value");
    flags[name] = alone ? "yes" : argv[++i];
  }
  return flags;
}

torch::Dtype dtype_named(const std::string& name) {
  TORCH_CHECK(name == "float32" || name == "bfloat16",
              "--dtype takes float32 or bfloat16, and not ", name);
  return name == "float32" ? torch::kFloat32 : torch::kBFloat16;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name, gpt::GPT& model) {
  if (name == "sgd") {
    return std::make_unique<torch::optim::SGD>(model->parameters(),
                                               torch::optim::SGDOptions(1e-3).momentum(0.9));
  }
  TORCH_CHECK(name == "adamw", "--optimizer takes sgd or adamw, and not ", name);
  return std::make_unique<torch::optim::AdamW>(model->parameters());
}

double train(gpt::GPT& model, torch::optim::Optimizer& optimizer, const gpt::Config& config,
             std::int64_t batch, int steps, torch::Device device) {
  const auto ids = torch::TensorOptions(torch::kLong).device(device);
  auto best = std::chrono::duration<double, std::milli>::max();
  for (int step = 0; step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    const auto inputs = torch::randint(config.vocabulary, {batch, config.length}, ids);
    const auto targets = torch::randint(config.vocabulary, {batch, config.length}, ids);
    optimizer.zero_grad();
    const auto logits = model(inputs);
    const auto loss = torch::nn::functional::cross_entropy(logits.view({-1, config.vocabulary}),
                                                           targets.view({-1}));
    loss.backward();
    optimizer.step();
    best = std::min<decltype(best)>(best, std::chrono::steady_clock::now() - begin);
  }
  return best.count();
}

int run(const Flags& flags) {
  torch::manual_seed(0);
  gpt::Config config;
  config.width = std::stoll(flags.at("--width"));
  config.layers = std::stoll(flags.at("--layers"));
  const auto batch = std::stoll(flags.at("--batch"));
  const int steps = std::stoi(flags.at("--steps"));

  std::optional<peakline::VirtualGpu> gpu;
  if (flags.contains("--gpu")) {
    gpu.emplace(peakline::VirtualGpuOptions{
        .gpu = flags.at("--gpu"),
        .memory = flags.contains("--memory") ? flags.at("--memory") : ""});
  }
  const torch::Device device = gpu ? torch::kCUDA : torch::kCPU;
  gpt::GPT model(config);
  model->to(dtype_named(flags.at("--dtype")));
  model->to(device);
  const auto optimizer = make_optimizer(flags.at("--optimizer"), model);

  std::optional<peakline::Tracker> tracker;
  if (flags.contains("--track")) tracker.emplace(*model, *optimizer);
  const double best_ms = train(model, *optimizer, config, batch, steps, device);
  if (flags.contains("--time")) std::cout << "best step: " << best_ms << " ms\n";
  if (tracker) {
    tracker->stop();
    tracker->save(flags.at("--track"));
    std::cout << "peak: " << tracker->summary().main_device()->peak_allocated.raw() << " bytes in "
              << tracker->steps() << " steps\n";
  }
  if (gpu) {
    gpu->stop();
    if (flags.contains("--record")) gpu->save(flags.at("--record"));
    std::cout << "on a virtual " << flags.at("--gpu") << ": " << gpu->peak_allocated()
              << " bytes allocated, " << gpu->peak_reserved() << " reserved, in " << gpu->steps()
              << " steps\n";
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const c10::Error& error) {
    std::cerr << "train_gpt: " << error.what_without_backtrace() << "\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "train_gpt: " << error.what() << "\n";
    return 2;
  }
}
