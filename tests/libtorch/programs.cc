// Training programs for tests/python/test_libtorch.py, which has the same in Python:
//   programs cnn|lstm|ops|own|guessed|encoder|two cpu|cuda RECORDING
#include <torch/torch.h>

#include <functional>
#include <iostream>
#include <map>
#include <string>

#include <peakline/torch.h>

namespace {

using torch::Tensor;
namespace nn = torch::nn;

struct LstmImpl : nn::Module {
  Tensor forward(const Tensor& ids) { return head(std::get<0>(lstm(embed(ids)))); }

  nn::Embedding embed{register_module("embed", nn::Embedding(1000, 64))};
  nn::LSTM lstm{
      register_module("lstm", nn::LSTM(nn::LSTMOptions(64, 128).num_layers(2).batch_first(true)))};
  nn::Linear head{register_module("head", nn::Linear(128, 1000))};
};
TORCH_MODULE(Lstm);

// A module that a Sequential calls, and that notes its calls itself.
struct OwnImpl : nn::Module {
  Tensor forward(const Tensor& x) {
    const peakline::ModuleCall call(*this, x);
    return (x * scale).exp();
  }
  Tensor scale = register_parameter("scale", torch::ones({64}));
};
TORCH_MODULE(Own);

struct OwnOptimizer : torch::optim::Optimizer {
  explicit OwnOptimizer(std::vector<Tensor> parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                  std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  Tensor step(LossClosure closure = nullptr) override {
    TORCH_CHECK(!closure, "this one takes no closure");
    const peakline::OptimizerStep step(*this);
    const torch::NoGradGuard no_grad;
    for (Tensor& parameter : param_groups()[0].params()) parameter.sub_(parameter.grad(), 0.1);
    return {};
  }
};

nn::Sequential cnn() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 16, 3).padding(1)), nn::BatchNorm2d(16),
                        nn::ReLU(), nn::MaxPool2d(2),
                        nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)), nn::BatchNorm2d(32),
                        nn::ReLU(), nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(32, 10));
}

torch::optim::SGDOptions momentum() { return torch::optim::SGDOptions(0.01).momentum(0.9); }

// Called when model and optimizer are there, and training is about to begin.
using Begin = std::function<void(nn::Module&, torch::optim::Optimizer&)>;

void train_cnn(torch::Device device, const Begin& begin) {
  nn::Sequential model = cnn();
  model->to(device);
  torch::optim::SGD optimizer(model->parameters(), momentum());
  begin(*model, optimizer);
  for (int step = 0; step < 3; ++step) {
    const Tensor images = torch::randn({8, 3, 32, 32}, device);
    const Tensor classes =
        torch::randint(10, {8}, torch::TensorOptions(torch::kLong).device(device));
    optimizer.zero_grad();
    const Tensor loss = nn::functional::cross_entropy(model->forward(images), classes);
    loss.backward();
    optimizer.step();
  }
}

void train_lstm(torch::Device device, const Begin& begin) {
  Lstm model;
  model->to(device);
  torch::optim::SGD optimizer(model->parameters(), momentum());
  begin(*model, optimizer);
  const auto ids = torch::TensorOptions(torch::kLong).device(device);
  for (int step = 0; step < 3; ++step) {
    const Tensor inputs = torch::randint(1000, {4, 32}, ids);
    const Tensor targets = torch::randint(1000, {4, 32}, ids);
    optimizer.zero_grad();
    const Tensor loss =
        nn::functional::cross_entropy(model(inputs).view({-1, 1000}), targets.view({-1}));
    loss.backward();
    optimizer.step();
  }
}

// Ops whose shape functions torch has in Python only.
Tensor ops_loss(nn::Linear& model, const Tensor& input) {
  Tensor y = model(input);
  y = at::hardswish(y);
  y = at::hardtanh(y);
  y = at::mish(y);
  y = y.flip({0});  // a line each: temporaries live to the end of theirs
  y = y.roll({1}, {0});
  y = at::where(y > 0, y, y * 0.5);
  const Tensor scale = y.std(std::vector<std::int64_t>{1}, true, true);
  y = y / scale;
  y = at::adaptive_avg_pool2d(y.view({16, 1, 8, 8}), {4, 4});
  const Tensor zero = torch::zeros_like(y);
  const Tensor squares = at::mse_loss(y, zero);  // before the other: C++ would choose the order
  const Tensor both = squares + at::huber_loss(y, zero);
  return both + at::binary_cross_entropy(y.sigmoid(), zero);
}

void train_ops(torch::Device device, const Begin& begin) {
  nn::Linear model(64, 64);
  model->to(device);
  torch::optim::SGD optimizer(model->parameters(), momentum());
  begin(*model, optimizer);
  for (int step = 0; step < 3; ++step) {
    const Tensor input = torch::randn({16, 64}, device);
    optimizer.zero_grad();
    const Tensor loss = ops_loss(model, input);
    loss.backward();
    optimizer.step();
  }
}

void train_own(torch::Device device, const Begin& begin) {
  nn::Sequential model(nn::Linear(64, 64), Own());
  model->to(device);
  OwnOptimizer optimizer(model->parameters());
  begin(*model, optimizer);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    model->forward(torch::randn({16, 64}, device)).sum().backward();
    optimizer.step();
  }
}

// Nobody that torch knows updates the parameters.
void train_guessed(torch::Device device, const Begin& begin) {
  nn::Linear model(64, 64);
  model->to(device);
  torch::optim::SGD unused(model->parameters(), momentum());
  begin(*model, unused);
  for (int step = 0; step < 4; ++step) {
    model->zero_grad();
    model(torch::randn({16, 64}, device)).sum().backward();
    const torch::NoGradGuard no_grad;
    for (Tensor& parameter : model->parameters()) parameter.sub_(parameter.grad(), 0.1);
  }
}

// Modules that torch's own modules call.
void train_encoder(torch::Device device, const Begin& begin) {
  nn::TransformerEncoder model(
      nn::TransformerEncoderOptions(nn::TransformerEncoderLayerOptions(64, 2).dropout(0), 2));
  model->to(device);
  torch::optim::SGD optimizer(model->parameters(), momentum());
  begin(*model, optimizer);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    model(torch::randn({16, 4, 64}, device)).sum().backward();
    optimizer.step();
  }
}

// A second recording inside the first.
void track_twice(torch::Device device, const Begin& begin) {
  nn::Linear model(64, 64);
  torch::optim::SGD optimizer(model->parameters(), momentum());
  begin(*model, optimizer);
  const peakline::Tracker second(*model, optimizer);
  static_cast<void>(device);
}

int run(const std::string& name, const std::string& device, const std::string& recording) {
  using Train = void (*)(torch::Device, const Begin&);
  const std::map<std::string, Train> programs{
      {"cnn", train_cnn},  {"lstm", train_lstm},       {"ops", train_ops},
      {"own", train_own},  {"guessed", train_guessed}, {"encoder", train_encoder},
      {"two", track_twice}};
  const Train train = programs.at(name);
  torch::manual_seed(0);
  if (device == "cuda") {
    peakline::VirtualGpu gpu;
    train(torch::kCUDA, [](nn::Module&, torch::optim::Optimizer&) {});
    gpu.stop();
    gpu.save(recording);
    for (const std::string& op : gpu.outputs_only()) std::cout << "results only: " << op << "\n";
    return 0;
  }
  std::unique_ptr<peakline::Tracker> tracker;
  train(torch::kCPU, [&](nn::Module& model, torch::optim::Optimizer& optimizer) {
    tracker = std::make_unique<peakline::Tracker>(model, optimizer);
    if (!peakline::Tracker::sees_torch_modules()) std::cerr << "torch's modules are not seen\n";
  });
  tracker->stop();
  if (!tracker->fault().empty()) {
    std::cout << "not all was tracked: " << tracker->fault() << "\n";
    return 0;
  }
  tracker->save(recording);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    return run(argv[1], argv[2], argv[3]);
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << "\n";
    return 1;
  }
}
