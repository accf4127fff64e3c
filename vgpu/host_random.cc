// Tensors too small to be virtual are filled for real; what the training machine's host needs for that is
// told here. Large ones come by the way of all virtual tensors.
#include "vgpu/host_random.h"

#include <ATen/ops/bernoulli_native.h>
#include <ATen/ops/normal_native.h>
#include <ATen/ops/random_native.h>
#include <ATen/ops/uniform_native.h>

#include "vgpu/engine.h"
#include "vgpu/host_work.h"
#include "vgpu/values/in_host_run.h"

namespace peakline::vgpu {
namespace {

using Generator = std::optional<at::Generator>;

void tell(const at::Tensor& self) {
  Engine* engine = current_engine();
  if (engine == nullptr || !engine->clock().on() || in_host_run()) return;
  HostWork::add(static_cast<double>(self.numel()) * engine->profile().time.host_random_ns / 1e3);
}

at::Tensor& uniform(at::Tensor& self, double from, double to, Generator generator) {
  tell(self);
  return at::native::uniform_(self, from, to, std::move(generator));
}

at::Tensor& normal(at::Tensor& self, double mean, double deviation, Generator generator) {
  tell(self);
  return at::native::normal_(self, mean, deviation, std::move(generator));
}

at::Tensor& random(at::Tensor& self, Generator generator) {
  tell(self);
  return at::native::random_(self, std::move(generator));
}

at::Tensor& random_to(at::Tensor& self, std::int64_t to, Generator generator) {
  tell(self);
  return at::native::random_(self, to, std::move(generator));
}

at::Tensor& random_from(at::Tensor& self, std::int64_t from, std::optional<std::int64_t> to,
                        Generator generator) {
  tell(self);
  return at::native::random_(self, from, to, std::move(generator));
}

at::Tensor& bernoulli(at::Tensor& self, double p, Generator generator) {
  tell(self);
  return at::native::bernoulli_(self, p, std::move(generator));
}

}  // namespace

void add_host_random(torch::Library& aten) {
  aten.impl("uniform_", TORCH_FN(uniform));
  aten.impl("normal_", TORCH_FN(normal));
  aten.impl("random_", TORCH_FN(random));
  aten.impl("random_.to", TORCH_FN(random_to));
  aten.impl("random_.from", TORCH_FN(random_from));
  aten.impl("bernoulli_.float", TORCH_FN(bernoulli));
}

}  // namespace peakline::vgpu
