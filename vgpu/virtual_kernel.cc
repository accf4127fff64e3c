#include "vgpu/virtual_kernel.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "vgpu/host_memory.h"
#include "vgpu/meta_run.h"
#include "vgpu/op_call.h"
#include "vgpu/run_program.h"
#include "vgpu/shape_builder.h"
#include "vgpu/shape_key.h"
#include "vgpu/values.h"

namespace peakline::vgpu {
namespace {

// What a CPU kernel needs beside its results is not modelled.
void add_outputs(ShapeEntry& entry) {
  for (std::size_t i = 0; i < entry.fresh.size(); ++i) {
    Step step;
    step.kind = Step::Kind::kOutput;
    step.index = static_cast<int>(i);
    step.bytes = Bytes(static_cast<std::int64_t>(entry.fresh[i]));
    entry.program.push_back(step);
  }
}

std::unique_ptr<ShapeEntry> find_shapes(Engine& engine, const Call& call,
                                        const std::optional<ValueRun>& values) {
  auto entry = std::make_unique<ShapeEntry>();
  if (values) {
    describe_results(values->stand_ins, values->results, *entry);
  } else {
    ShapeBuilder builder(*entry);
    if (call.info.rule == nullptr || !call.info.rule(call, builder)) {
      entry->outputs.clear();
      entry->fresh.clear();
      run_on_meta(call, *entry);
    }
  }
  if (call.device != kHost) {
    add_program(call, engine, *entry);
    return entry;
  }
  if (engine.clock().on()) entry->time = op_time(op_call(call, *entry, {}), engine.profile(), {});
  add_outputs(*entry);
  return entry;
}

// On the device, unlike a view.
bool computes(const Call& call, const ShapeEntry& entry) {
  return call.device >= 0 && (!entry.fresh.empty() || call.info.written != 0);
}

// Ops of other libraries are run at once: what they do beside computing is not known.
bool can_wait(const OpInfo& info) { return info.name.text.starts_with("aten::"); }

class Runner {
 public:
  Runner(Engine& engine, Call& call, OpInfo& info) : engine_(engine), call_(call), info_(info) {}

  void run(torch::jit::Stack& stack) {
    const Follow how = what_follows(call_);
    std::optional<ValueRun> values;
    const bool now = depends_on_values(call_) || !can_wait(info_);
    if (how == Follow::kExact && now) values = run_on_values(engine_, call_);
    const ShapeEntry* entry = find(values);
    torch::jit::Stack results = run_program(engine_, call_, info_.name, *entry);
    if (computes(call_, *entry)) engine_.memory().launched(call_.device);
    engine_.clock().op(call_.device, entry->time);
    if (values) {
      keep_values(engine_, call_, *entry, *values, results);
    } else {
      follow(engine_, call_, now && how == Follow::kExact ? Follow::kNothing : how, *entry,
             results);
    }
    stack.resize(stack.size() - info_.arity);
    for (c10::IValue& result : results) stack.push_back(std::move(result));
  }

 private:
  const ShapeEntry* find(const std::optional<ValueRun>& values) {
    thread_local std::vector<std::uint64_t> key;
    // What was computed may have sizes that other values would not give.
    const bool cacheable = !values && !depends_on_values(call_) && make_key(call_, key);
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

// The time of such an op, remembered under its shapes like the entries of others.
void tell_clock(Engine& engine, const Call& call) {
  if (!engine.clock().on()) return;
  thread_local std::vector<std::uint64_t> key;
  if (!make_key(call, key)) return engine.clock().op(call.device, OpTime{});
  const std::uint64_t hash = hash_words(key);
  const ShapeEntry* entry = engine.cache().find(hash, key);
  if (entry == nullptr) {
    auto made = std::make_unique<ShapeEntry>();
    const KernelState state = engine.kernel_state(kernel_switches());
    made->time = op_time(op_call(call, *made, state.switches), engine.profile(), state);
    made->key = key;
    entry = engine.cache().add(hash, std::move(made));
  }
  engine.clock().op(call.device, entry->time);
}

void count_versions(const Call& call) {
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    if (!call.writes(i)) continue;
    c10::TensorImpl* impl = call.tensors[i]->unsafeGetTensorImpl();
    if (!impl->is_inference()) impl->bump_version();
  }
}

bool runs_on_host(const Call& call) {
  return std::ranges::any_of(call.tensors, [](const at::Tensor* t) { return is_virtual_host(*t); });
}

void run(const c10::OperatorHandle& op, OpInfo& info, torch::jit::Stack* stack) {
  Engine& engine = engine_or_throw(info.full_name.c_str());
  Counters& counters = engine.counters();
  counters.ops.store(counters.ops.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  Call call(op, info,
            c10::ArrayRef<c10::IValue>(stack->data() + (stack->size() - info.arity), info.arity));
  collect_tensors(call);
  if (call.device < 0) call.device = runs_on_host(call) ? kHost : ThisThread::device();
  if (only_changes_values(call) && what_follows(call) == Follow::kNothing) {
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
      if (call.writes(i)) forget_values(*call.tensors[i]);
    }
    tell_clock(engine, call);
    if (call.device >= 0) engine.memory().launched(call.device);
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
