// How calls of modules and steps of optimizers are seen in a C++ program, where neither has a hook.
//
// torch's own modules and optimizers are seen without a word. Of one's own modules those are seen that
// are called through their holder, `block(x)`, when TORCH_MODULE(Block) comes after this header; inside
// a Sequential, or called as `block->forward(x)`, a module is seen when its forward begins with
//
//     peakline::ModuleCall call(*this, x);
//
// and an optimizer of one's own when its step does with `peakline::OptimizerStep step(*this);`. Noting a
// call twice does no harm. Without a Tracker each is a check of one flag.
#pragma once

#include <torch/nn.h>
#include <torch/optim/optimizer.h>

#include <atomic>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include <peakline/torch/api.h>

namespace peakline {
namespace torch_detail {

extern PEAKLINE_TORCH_API std::atomic<bool> g_tracking;
[[nodiscard]] inline bool tracking() noexcept { return g_tracking.load(std::memory_order_relaxed); }
[[nodiscard]] PEAKLINE_TORCH_API bool outside_modules() noexcept;
PEAKLINE_TORCH_API void note_inputs(const std::vector<at::Tensor>& inputs) noexcept;

template <class Argument>
void add_tensors(std::vector<at::Tensor>& tensors, const Argument& argument) {
  if constexpr (std::is_convertible_v<const Argument&, const at::Tensor&>) {
    tensors.push_back(argument);
  } else if constexpr (std::is_convertible_v<const Argument&, const std::vector<at::Tensor>&>) {
    const std::vector<at::Tensor>& several = argument;
    tensors.insert(tensors.end(), several.begin(), several.end());
  }
}

}  // namespace torch_detail

// A call of `module`, from here to the end of the block, however it ends. Tensors among `inputs` are
// the program's inputs when no other module is running.
class PEAKLINE_TORCH_API ModuleCall {
 public:
  template <class... Inputs>
  explicit ModuleCall(const ::torch::nn::Module& module, const Inputs&... inputs) {
    if (!torch_detail::tracking()) return;
    if constexpr (sizeof...(Inputs) > 0) {
      if (torch_detail::outside_modules()) {
        std::vector<at::Tensor> tensors;
        (torch_detail::add_tensors(tensors, inputs), ...);
        torch_detail::note_inputs(tensors);
      }
    }
    enter(module);
  }
  ~ModuleCall() {
    if (entered_) leave();
  }
  ModuleCall(const ModuleCall&) = delete;
  ModuleCall& operator=(const ModuleCall&) = delete;

 private:
  void enter(const ::torch::nn::Module& module) noexcept;
  void leave() noexcept;

  bool entered_ = false;
  alignas(8) std::byte scope_[24];  // what is noted at the end
};

// A step of `optimizer`, from here to the end of the block. One that ends with an exception is none.
class PEAKLINE_TORCH_API OptimizerStep {
 public:
  explicit OptimizerStep(const ::torch::optim::Optimizer& optimizer) {
    if (torch_detail::tracking()) begin(optimizer);
  }
  ~OptimizerStep() {
    if (optimizer_ != nullptr) end();
  }
  OptimizerStep(const OptimizerStep&) = delete;
  OptimizerStep& operator=(const OptimizerStep&) = delete;

 private:
  void begin(const ::torch::optim::Optimizer& optimizer) noexcept;
  void end() noexcept;

  const ::torch::optim::Optimizer* optimizer_ = nullptr;
  int exceptions_ = 0;
};

// As torch's holder, and its calls are seen.
template <class Contained>
class WatchedHolder : public ::torch::nn::ModuleHolder<Contained> {
 public:
  using ::torch::nn::ModuleHolder<Contained>::ModuleHolder;

  template <class... Args>
  auto operator()(Args&&... args) -> ::torch::detail::return_type_of_forward_t<Contained, Args...> {
    const ModuleCall call(*this->impl_, args...);
    return this->impl_->forward(std::forward<Args>(args)...);
  }
};

namespace torch_detail {

inline at::Tensor run_sequential(::torch::nn::SequentialImpl& modules, const at::Tensor& input) {
  TORCH_CHECK(!modules.is_empty(), "Cannot call forward() on an empty Sequential");
  const ModuleCall call(modules, input);
  ::torch::nn::AnyValue value{at::Tensor(input)};
  for (::torch::nn::AnyModule& module : modules) value = module.any_forward(std::move(value));
  return value.get<at::Tensor>();
}

}  // namespace torch_detail
}  // namespace peakline

// The forward of these is compiled into each program, not into libtorch, where it would be seen.
#define PEAKLINE_WATCH_INLINE_MODULE(Name)                                                         \
  template <>                                                                                      \
  template <class... Args>                                                                         \
  auto ModuleHolder<Name>::operator()(Args&&... args)                                              \
      ->::torch::detail::return_type_of_forward_t<Name, Args...> {                                 \
    const ::peakline::ModuleCall call(*impl_, args...);                                            \
    return impl_->forward(std::forward<Args>(args)...);                                            \
  }                                                                                                \
  template <>                                                                                      \
  inline AnyValue AnyModuleHolder<Name, const Tensor&>::forward(std::vector<AnyValue>&& args) {    \
    TORCH_CHECK(args.size() == 1, #Name "::forward takes one tensor, and was given ", args.size(), \
                " arguments");                                                                     \
    const ::peakline::ModuleCall call(*module);                                                    \
    return AnyValue(module->forward(args[0].get<Tensor>()));                                       \
  }

namespace torch::nn {
PEAKLINE_WATCH_INLINE_MODULE(BatchNorm1dImpl)
PEAKLINE_WATCH_INLINE_MODULE(BatchNorm2dImpl)
PEAKLINE_WATCH_INLINE_MODULE(BatchNorm3dImpl)
PEAKLINE_WATCH_INLINE_MODULE(InstanceNorm1dImpl)
PEAKLINE_WATCH_INLINE_MODULE(InstanceNorm2dImpl)
PEAKLINE_WATCH_INLINE_MODULE(InstanceNorm3dImpl)
#undef PEAKLINE_WATCH_INLINE_MODULE

// A Sequential from one tensor to another.
template <>
inline Tensor SequentialImpl::forward<Tensor, Tensor>(Tensor&& input) {
  return ::peakline::torch_detail::run_sequential(*this, input);
}
template <>
inline Tensor SequentialImpl::forward<Tensor, Tensor&>(Tensor& input) {
  return ::peakline::torch_detail::run_sequential(*this, input);
}
template <>
inline Tensor SequentialImpl::forward<Tensor, const Tensor&>(const Tensor& input) {
  return ::peakline::torch_detail::run_sequential(*this, input);
}
}  // namespace torch::nn

// From here on a module's holder notes its calls.
#undef TORCH_MODULE_IMPL
// NOLINTBEGIN(bugprone-macro-parentheses): the names of classes
#define TORCH_MODULE_IMPL(Name, ImplType)                     \
  class Name : public ::peakline::WatchedHolder<ImplType> {   \
   public:                                                    \
    using ::peakline::WatchedHolder<ImplType>::WatchedHolder; \
    using Impl [[maybe_unused]] = ImplType;                   \
  }
// NOLINTEND(bugprone-macro-parentheses)
