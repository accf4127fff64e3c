#include "vgpu/registration.h"

#include <c10/util/Exception.h>
#include <torch/library.h>

#include <memory>
#include <set>
#include <string>

#include "vgpu/collectives.h"
#include "vgpu/kernel.h"
#include "vgpu/kernels.h"
#include "vgpu/rules.h"

namespace peakline::vgpu {
namespace {

constexpr const char* kCudaOps[] = {
#include "cuda_ops.inc"
};

// torch tells people when a kernel takes another one's place; here that is what is wanted.
class Silence final : public c10::WarningHandler {
 public:
  Silence() : before_(c10::WarningUtils::get_warning_handler()) {
    c10::WarningUtils::set_warning_handler(this);
  }
  ~Silence() override { c10::WarningUtils::set_warning_handler(before_); }
  void process(const c10::Warning&) override {}

 private:
  c10::WarningHandler* before_;
};

using Library = std::unique_ptr<torch::Library>;
Library make_library(const char* space, c10::DispatchKey key) {
  return std::make_unique<torch::Library>(torch::Library::IMPL, space, key, __FILE__, __LINE__);
}

c10::OperatorName split(const std::string& full) {
  const std::size_t dot = full.find('.');
  if (dot == std::string::npos) return {"aten::" + full, ""};
  return {"aten::" + full.substr(0, dot), full.substr(dot + 1)};
}

void add_kernel(torch::Library& library, const std::string& name) {
  const auto op = c10::Dispatcher::singleton().findSchema(split(name));
  if (!op) return;
  OpInfo info = describe(*op);
  info.rule = rule_for(info.full_name);
  if (info.rule == nullptr) info.rule = rule_for(info.name.text);
  library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(
                                 std::make_unique<VirtualKernel>(std::move(info))));
}

bool compatible(const at::Tensor&, const at::Tensor&) { return true; }

struct Registered {
  Library aten;
  Library autograd;
  Library fallback;
  Library c10d;
};

std::unique_ptr<torch::Library>& factories() {
  static auto* const kFactories = new std::unique_ptr<torch::Library>;
  return *kFactories;
}

}  // namespace

void register_kernels() {
  static Registered* registered = nullptr;
  if (registered != nullptr) return;
  const Silence silence;
  auto made = std::make_unique<Registered>();
  made->aten = make_library("aten", c10::DispatchKey::PrivateUse1);
  add_hand_written(*made->aten);
  std::set<std::string> taken(hand_written().begin(), hand_written().end());
  for (const char* name : kCudaOps) {
    if (!taken.contains(std::string("aten::") + name)) add_kernel(*made->aten, name);
  }
  made->autograd = make_library("aten", c10::DispatchKey::AutogradPrivateUse1);
  made->autograd->impl("_has_compatible_shallow_copy_type", TORCH_FN(compatible));
  made->fallback = make_library("_", c10::DispatchKey::PrivateUse1);
  made->fallback->fallback(torch::CppFunction::makeFromBoxedFunction<&run_unknown_op>());
  made->c10d = make_library("c10d", c10::DispatchKey::PrivateUse1);
  add_collectives(*made->c10d);
  registered = made.release();
}

void register_factories() {
  const Silence silence;
  factories() = make_library("aten", c10::DispatchKey::CUDA);
  add_factories(*factories());
}

void unregister_factories() {
  const Silence silence;
  factories().reset();
}

}  // namespace peakline::vgpu
