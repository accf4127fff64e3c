#include "vgpu/virtual_kernel.h"

#include <ATen/ATen.h>

#include <mutex>
#include <unordered_map>

#include "vgpu/meta_run.h"
#include "vgpu/run_program.h"
#include "vgpu/shape_builder.h"
#include "vgpu/shape_key.h"
#include "vgpu/values.h"

namespace peakline::vgpu {
namespace {

std::unique_ptr<ShapeEntry> find_shapes(Engine& engine, const Call& call,
                                        const std::optional<ValueRun>& values) {
  auto entry = std::make_unique<ShapeEntry>();
  if (values && depends_on_values(call)) {
    describe_results(values->stand_ins, values->results, *entry);
  } else {
    ShapeBuilder builder(*entry);
    if (call.info.rule == nullptr || !call.info.rule(call, builder)) {
      entry->outputs.clear();
      entry->fresh.clear();
      run_on_meta(call, *entry);
    }
  }
  add_program(call, engine, *entry);
  return entry;
}

bool small_enough(const Engine& engine, const ShapeEntry& entry) {
  std::uint64_t bytes = 0;
  for (const std::uint64_t size : entry.fresh) bytes += size;
  return bytes <= engine.value_bytes();
}

// A GradScaler's gradients are taken to be finite: its flag keeps the zero it was made with, so that
// the optimizer steps.
bool taken_as_finite(const Call& call, std::size_t tensor) {
  return call.argument_of[tensor] == 1 &&
         call.info.name.text == "aten::_amp_foreach_non_finite_check_and_unscale_";
}

class Runner {
 public:
  Runner(Engine& engine, Call& call, OpInfo& info) : engine_(engine), call_(call), info_(info) {}

  void run(torch::jit::Stack& stack) {
    const bool known = reads_only_values(call_);
    std::optional<ValueRun> values;
    if (known && depends_on_values(call_)) values = run_on_values(engine_, call_);
    const ShapeEntry* entry = find(values);
    if (known && !values && small_enough(engine_, *entry)) values = run_on_values(engine_, call_);
    forget_written(values);
    torch::jit::Stack results = run_program(engine_, call_, info_.name, *entry);
    if (values) keep_values(*entry, *values, results);
    stack.resize(stack.size() - info_.arity);
    for (c10::IValue& result : results) stack.push_back(std::move(result));
  }

 private:
  const ShapeEntry* find(const std::optional<ValueRun>& values) {
    thread_local std::vector<std::uint64_t> key;
    const bool cacheable = !depends_on_values(call_) && make_key(call_, key);
    if (!cacheable) {
      count(engine_.counters().misses);
      own_ = find_shapes(engine_, call_, values);
      return own_.get();
    }
    const std::uint64_t hash = hash_words(key);
    if (const ShapeEntry* entry = engine_.cache().find(hash, key)) {
      count(engine_.counters().hits);
      return entry;
    }
    count(engine_.counters().misses);
    std::vector<std::uint64_t> mine = key;  // a shape function may run ops of its own
    std::unique_ptr<ShapeEntry> entry = find_shapes(engine_, call_, values);
    entry->key = std::move(mine);
    return engine_.cache().add(hash, std::move(entry));
  }

  static void count(std::atomic<std::uint64_t>& counter) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  void forget_written(const std::optional<ValueRun>& values) {
    if (call_.info.written == 0) return;
    for (std::size_t i = 0; i < call_.tensors.size(); ++i) {
      if (!call_.writes(i) || !is_virtual(*call_.tensors[i])) continue;
      if (!values && !taken_as_finite(call_, i)) forget_values(*call_.tensors[i]);
    }
  }

  // New tensors get the values that were computed for them; what was changed in place has them.
  void keep_values(const ShapeEntry& entry, const ValueRun& values, torch::jit::Stack& results) {
    for (std::size_t i = 0; i < call_.tensors.size(); ++i) {
      if (!call_.only_writes(i) || !is_virtual(*call_.tensors[i])) continue;
      const bool fits = values.stand_ins[i].sizes() == call_.tensors[i]->sizes();
      if (fits)
        give_values(engine_, *call_.tensors[i], values.stand_ins[i]);
      else
        forget_values(*call_.tensors[i]);
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      keep_values(entry.outputs[i], values.results[i], results[i]);
    }
  }

  void keep_values(const Output& output, const c10::IValue& computed, c10::IValue& result) {
    if (output.kind == Output::Kind::kValue) {
      result = computed;
    } else if (output.kind == Output::Kind::kFresh && computed.isTensor() &&
               computed.toTensor().sizes() == result.toTensor().sizes()) {
      give_values(engine_, result.toTensor(), computed.toTensor());
    } else if (output.kind == Output::Kind::kList) {
      const auto made = result.toListRef();
      const auto found = computed.toListRef();
      for (std::size_t i = 0; i < made.size(); ++i) {
        c10::IValue item = made[i];
        keep_values(output.items[i], found[i], item);
      }
    }
  }

  Engine& engine_;
  Call& call_;
  OpInfo& info_;
  std::unique_ptr<ShapeEntry> own_;
};

// Nothing to find out: the op changes tensors where they are.
bool only_changes_values(const Call& call) {
  return call.info.changes_in_place && call.info.rule == nullptr &&
         (call.info.random || call.op.schema().returns().empty());
}

void count_versions(const Call& call) {
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    if (!call.writes(i)) continue;
    c10::TensorImpl* impl = call.tensors[i]->unsafeGetTensorImpl();
    if (!impl->is_inference()) impl->bump_version();
  }
}

void run(const c10::OperatorHandle& op, OpInfo& info, torch::jit::Stack* stack) {
  Engine& engine = engine_or_throw(info.full_name.c_str());
  Counters& counters = engine.counters();
  counters.ops.store(counters.ops.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  Call call(op, info,
            c10::ArrayRef<c10::IValue>(stack->data() + (stack->size() - info.arity), info.arity));
  collect_tensors(call);
  if (call.device < 0) call.device = ThisThread::device();
  if (only_changes_values(call) && !reads_only_values(call)) {
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
      if (!call.writes(i) || !is_virtual(*call.tensors[i]) || taken_as_finite(call, i)) continue;
      forget_values(*call.tensors[i]);
    }
    if (info.counts_versions) count_versions(call);
    const bool returns = !op.schema().returns().empty();
    stack->resize(stack->size() - info.arity + (returns ? 1 : 0));
    return;
  }
  if (info.counts_versions) count_versions(call);
  Runner(engine, call, info).run(*stack);
}

}  // namespace

void VirtualKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                               torch::jit::Stack* stack) {
  run(op, info_, stack);
}

void run_unknown_op(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  static auto* const kMutex = new std::mutex;
  static auto* const kInfos = new std::unordered_map<c10::OperatorName, std::unique_ptr<OpInfo>>;
  OpInfo* info = nullptr;
  {
    const std::lock_guard guard(*kMutex);
    std::unique_ptr<OpInfo>& slot = (*kInfos)[op.operator_name()];
    if (!slot) slot = std::make_unique<OpInfo>(describe(op));
    info = slot.get();
  }
  run(op, *info, stack);
}

}  // namespace peakline::vgpu
