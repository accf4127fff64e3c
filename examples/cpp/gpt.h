// A small GPT in libtorch: as one would write it, but that peakline/torch.h comes before the modules.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include <peakline/torch.h>

namespace gpt {

struct Config {
  std::int64_t vocabulary = 8192;
  std::int64_t length = 128;
  std::int64_t width = 256;
  std::int64_t heads = 4;
  std::int64_t layers = 4;
};

struct AttentionImpl : torch::nn::Module {
  explicit AttentionImpl(const Config& config)
      : heads(config.heads),
        qkv(register_module("qkv", torch::nn::Linear(config.width, 3 * config.width))),
        out(register_module("out", torch::nn::Linear(config.width, config.width))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const auto batch = x.size(0), length = x.size(1), width = x.size(2);
    const auto parts =
        qkv(x).view({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
    const auto y = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    return out(y.transpose(1, 2).reshape({batch, length, width}));
  }

  std::int64_t heads;
  torch::nn::Linear qkv, out;
};
TORCH_MODULE(Attention);

struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(const Config& config)
      : up(register_module("up", torch::nn::Linear(config.width, 4 * config.width))),
        gelu(register_module("gelu", torch::nn::GELU())),
        down(register_module("down", torch::nn::Linear(4 * config.width, config.width))) {}

  torch::Tensor forward(const torch::Tensor& x) { return down(gelu(up(x))); }

  torch::nn::Linear up;
  torch::nn::GELU gelu;
  torch::nn::Linear down;
};
TORCH_MODULE(Mlp);

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const Config& config)
      : norm1(register_module("norm1", norm(config))),
        attention(register_module("attention", Attention(config))),
        norm2(register_module("norm2", norm(config))),
        mlp(register_module("mlp", Mlp(config))) {}

  static torch::nn::LayerNorm norm(const Config& config) {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.width}));
  }

  torch::Tensor forward(torch::Tensor x) {
    x = x + attention(norm1(x));
    return x + mlp(norm2(x));
  }

  torch::nn::LayerNorm norm1;
  Attention attention;
  torch::nn::LayerNorm norm2;
  Mlp mlp;
};
TORCH_MODULE(Block);

struct GPTImpl : torch::nn::Module {
  explicit GPTImpl(const Config& config)
      : tokens(register_module("tokens", torch::nn::Embedding(config.vocabulary, config.width))),
        positions(register_module("positions", torch::nn::Embedding(config.length, config.width))),
        norm(nullptr),
        head(nullptr) {
    torch::nn::ModuleList list;
    for (std::int64_t i = 0; i < config.layers; ++i) {
      blocks.emplace_back(config);
      list->push_back(blocks.back().ptr());
    }
    register_module("blocks", list);
    norm = register_module("norm", BlockImpl::norm(config));
    head = register_module(
        "head",
        torch::nn::Linear(torch::nn::LinearOptions(config.width, config.vocabulary).bias(false)));
  }

  torch::Tensor forward(const torch::Tensor& ids) {
    const auto places =
        torch::arange(ids.size(1), torch::TensorOptions(torch::kLong).device(ids.device()));
    auto x = tokens(ids) + positions(places);
    for (Block& block : blocks) x = block(x);
    return head(norm(x));
  }

  torch::nn::Embedding tokens, positions;
  std::vector<Block> blocks;
  torch::nn::LayerNorm norm;
  torch::nn::Linear head;
};
TORCH_MODULE(GPT);

}  // namespace gpt
