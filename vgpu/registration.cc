#include "vgpu/registration.h"

#include <c10/util/Exception.h>
#include <torch/library.h>

#include <map>
#include <memory>
#include <set>
#include <string>

#include "vgpu/collectives.h"
#include "vgpu/ctc_loss.h"
#include "vgpu/factories.h"
#include "vgpu/hand_written.h"
#include "vgpu/host_random.h"
#include "vgpu/host_tensors.h"
#include "vgpu/nested/nested_kernels.h"
#include "vgpu/shape_rules.h"
#include "vgpu/shared_code.h"
#include "vgpu/sparse/sparse_kernels.h"
#include "vgpu/virtual_kernel.h"

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
  Library coo;
  Library compressed;
  Library coo_fallback;
  Library compressed_fallback;
  Library nested;
  Library nested_fallback;
  Library functional;
};

// While a virtual GPU is on, a real CUDA kernel must not run: it would take real memory, or read at
// an address that is none.
void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
  const c10::OperatorName& name = op.operator_name();
  TORCH_CHECK(false, name.name, name.overload_name.empty() ? "" : ".", name.overload_name,
              " was about to run on a real GPU inside a peakline.virtual_gpu() block; tensors of a "
              "real GPU cannot be used there");
}

struct WhileOn {
  Library factories;
  Library host_factories;
  Library refused;
  Library coo;
  Library compressed;
  Library coo_fallback;
  Library compressed_fallback;
  std::map<std::string, Library> results_alone;  // by op
};

std::unique_ptr<WhileOn>& while_on() {
  static auto* const kWhileOn = new std::unique_ptr<WhileOn>;
  return *kWhileOn;
}

bool has_cuda_kernels() {
  const auto op = c10::Dispatcher::singleton().findSchema({"aten::add", "Tensor"});
  return op && op->hasKernelForDispatchKey(c10::DispatchKey::CUDA);
}

void refuse_all(WhileOn& on) {
  on.refused = make_library("aten", c10::DispatchKey::CUDA);
  const std::set<std::string> made{
      "empty.memory_format",       "empty_strided",       "tril_indices", "triu_indices",
      "_cudnn_init_dropout_state", "_efficientzerotensor"};
  for (const char* name : kCudaOps) {
    if (made.contains(name) || !c10::Dispatcher::singleton().findSchema(split(name))) continue;
    on.refused->impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse>());
  }
  on.refused->impl("copy_", torch::CppFunction::makeFromBoxedFunction<&refuse>());
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
  for (const std::set<std::string>& names :
       {add_ops_that_give_sparse(*made->aten), add_ops_that_give_nested(*made->aten)}) {
    for (const std::string& name : names) taken.insert("aten::" + name);
  }
  for (const char* name : kCudaOps) {
    if (!taken.contains(std::string("aten::") + name)) add_kernel(*made->aten, name);
  }
  made->autograd = make_library("aten", c10::DispatchKey::AutogradPrivateUse1);
  made->autograd->impl("_has_compatible_shallow_copy_type", TORCH_FN(compatible));
  add_ctc_loss_of_tensors(*made->autograd);
  made->fallback = make_library("_", c10::DispatchKey::PrivateUse1);
  made->fallback->fallback(torch::CppFunction::makeFromBoxedFunction<&run_unknown_op>());
  made->c10d = make_library("c10d", c10::DispatchKey::PrivateUse1);
  add_collectives(*made->c10d);
  made->coo = make_library("aten", c10::DispatchKey::SparsePrivateUse1);
  add_coo_kernels(*made->coo);
  made->compressed = make_library("aten", c10::DispatchKey::SparseCsrPrivateUse1);
  add_compressed_kernels(*made->compressed);
  made->coo_fallback = make_library("_", c10::DispatchKey::SparsePrivateUse1);
  made->coo_fallback->fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_without_kernel>());
  made->compressed_fallback = make_library("_", c10::DispatchKey::SparseCsrPrivateUse1);
  made->compressed_fallback->fallback(
      torch::CppFunction::makeFromBoxedFunction<&refuse_without_kernel>());
  made->nested = make_library("aten", c10::DispatchKey::NestedTensorPrivateUse1);
  add_nested_kernels(*made->nested);
  made->nested_fallback = make_library("_", c10::DispatchKey::NestedTensorPrivateUse1);
  made->nested_fallback->fallback(
      torch::CppFunction::makeFromBoxedFunction<&refuse_without_kernel>());
  made->functional = make_library("_c10d_functional", c10::DispatchKey::PrivateUse1);
  add_waits(*made->functional);
  registered = made.release();
}

void register_factories() {
  const Silence silence;
  auto on = std::make_unique<WhileOn>();
  if (has_cuda_kernels()) refuse_all(*on);
  on->factories = make_library("aten", c10::DispatchKey::CUDA);
  add_factories(*on->factories);
  on->coo = make_library("aten", c10::DispatchKey::SparseCUDA);
  add_coo_kernels(*on->coo);
  on->compressed = make_library("aten", c10::DispatchKey::SparseCsrCUDA);
  add_compressed_kernels(*on->compressed);
  on->coo_fallback = make_library("_", c10::DispatchKey::SparseCUDA);
  on->coo_fallback->fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_without_kernel>());
  on->compressed_fallback = make_library("_", c10::DispatchKey::SparseCsrCUDA);
  on->compressed_fallback->fallback(
      torch::CppFunction::makeFromBoxedFunction<&refuse_without_kernel>());
  on->host_factories = make_library("aten", c10::DispatchKey::CPU);
  add_host_factories(*on->host_factories);
  add_host_random(*on->host_factories);
  while_on() = std::move(on);
}

void unregister_factories() {
  const Silence silence;
  while_on().reset();
}

void count_results_alone(const std::string& name) {
  const std::size_t colons = name.find("::");
  TORCH_CHECK(while_on() && colons != std::string::npos, "no virtual GPU runs ", name);
  const Silence silence;
  Library library = make_library(name.substr(0, colons).c_str(), c10::DispatchKey::PrivateUse1);
  library->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_unknown_op>());
  while_on()->results_alone[name] = std::move(library);
}

void run_own_code(const std::string& name) {
  const Silence silence;
  if (while_on()) while_on()->results_alone.erase(name);
}

}  // namespace peakline::vgpu
