#include "recompute/contexts.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/library.h>

#include <algorithm>

namespace peakline::recompute {
namespace {

// Below autograd, above the kernels. Up to 2.13 torch has no kernels there; where it has, it is torch's.
constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

// A context that watches. What a backward pass inside it calls is none of the module's ops.
struct Frame {
  Context* context;
  int graph_task;
};

thread_local std::vector<Frame> frames;

bool any_on_meta(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const std::size_t count = op.schema().arguments().size();
  return std::any_of(
      stack.end() - static_cast<std::ptrdiff_t>(count), stack.end(), [](const c10::IValue& value) {
        return value.isTensor() && value.toTensor().defined() && value.toTensor().is_meta();
      });
}

void run_below(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  // What the kernel calls is part of it.
  const c10::impl::ExcludeDispatchKeyGuard once(kKey);
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), &stack);
}

// The innermost context first; what it runs is seen by the one around it.
void run(std::size_t level, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
         torch::jit::Stack& stack) {
  if (level == 0) return run_below(op, keys, stack);
  const Frame frame = frames[level - 1];
  const auto further = [&] { run(level - 1, op, keys, stack); };
  if (frame.graph_task != torch::autograd::get_current_graph_task_id()) return further();
  frame.context->op(op, stack, further);
}

void watched(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  // Shapes that a compiler asks for are no calls of the program.
  run(frames.empty() || any_on_meta(op, *stack) ? 0 : frames.size(), op, keys, *stack);
}

bool register_fallback() {
  if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kKey)) return false;
  static auto* library =
      new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);  // for good
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&watched>());
  return true;
}

void put(torch::jit::Stack& stack, std::size_t arguments, std::vector<c10::IValue> results) {
  torch::jit::drop(stack, arguments);
  for (c10::IValue& result : results) stack.push_back(std::move(result));
}

// Of an op that gives a view: the tensor that it is a view of.
at::Tensor viewed(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const c10::IValue& first = torch::jit::peek(stack, 0, op.schema().arguments().size());
  return first.isTensor() ? first.toTensor() : at::Tensor();
}

bool draws(const Rule& rule, const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (!rule.random || rule.dropout < 0) return rule.random;
  return torch::jit::peek(stack, static_cast<std::size_t>(rule.dropout),
                          op.schema().arguments().size())
             .toDouble() != 0;
}

}  // namespace

bool available() {
  static const bool ours = register_fallback();
  return ours;
}

void Context::enter() {
  frames.push_back({this, torch::autograd::get_current_graph_task_id()});
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

void Context::leave() {
  frames.pop_back();
  if (frames.empty()) c10::impl::tls_set_dispatch_key_included(kKey, false);
}

void Forward::op(const c10::OperatorHandle& op, torch::jit::Stack& stack, Run run) {
  const Rule& rule = rules_->of(op);
  if (rule.plain()) return run();
  const std::int64_t number = called_[&rule]++;
  const bool kept = rule.keep != nullptr && rule.keep->contains(number);
  if (draws(rule, op, stack)) check_random(name_of(op), kept);
  const at::Tensor base = kept && rule.view ? viewed(op, stack) : at::Tensor();
  run();
  if (kept) (*results_)[op].insert_or_assign(number, Kept(stack, rule.returns, base));
}

// One that is kept and one that is not would draw each other's numbers.
void Forward::check_random(const std::string& name, bool kept) {
  std::string& first = kept ? random_kept_ : random_recomputed_;
  if (first.empty()) first = name;
  TORCH_CHECK(random_kept_.empty() || random_recomputed_.empty(),
              "ops that draw random numbers are kept together or recomputed together, and the plan "
              "keeps some of them: ",
              random_kept_, " and not ", random_recomputed_);
}

void Recomputation::enter() {
  called_.clear();
  Context::enter();
}

void Recomputation::op(const c10::OperatorHandle& op, torch::jit::Stack& stack, Run run) {
  const auto of_op = results_->find(op);
  if (of_op == results_->end()) return run();
  const auto kept = of_op->second.find(called_[op]++);
  if (kept == of_op->second.end()) return run();
  put(stack, op.schema().arguments().size(), kept->second.values(name_of(op)));
  of_op->second.erase(kept);
}

std::vector<Recomputation::Left> Recomputation::take() {
  std::vector<Left> left;
  for (const auto& [op, of_op] : *results_) {
    const std::string name = name_of(op);
    for (const auto& [number, kept] : of_op) left.push_back({name, number, kept.values(name)});
  }
  results_->clear();
  return left;
}

}  // namespace peakline::recompute
