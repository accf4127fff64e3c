#include "vgpu/run_program.h"

#include <torch/csrc/autograd/graph_task.h>

#include <peakline/category.h>

#include "vgpu/host_memory.h"
#include "vgpu/host_tensors.h"
#include "vgpu/op_call.h"
#include "vgpu/values/host_run.h"

namespace peakline::vgpu {
namespace {

// Scratch blocks that are freed however the op ends.
class Scratch {
 public:
  Scratch(Engine& engine, int device, std::uint32_t stream, OpName& op)
      : engine_(engine), device_(device), stream_(stream), op_(op) {}
  ~Scratch() {
    for (const std::uint64_t address : addresses_) engine_.memory().free(device_, address);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void allocate(int index, std::uint64_t bytes, Certainty certainty) {
    const auto slot = static_cast<std::size_t>(index);
    if (addresses_.size() <= slot) addresses_.resize(slot + 1);
    const std::optional<Block> block =
        engine_.memory().allocate(device_, bytes, stream_, &op_, category::kWorkspace, certainty);
    TORCH_CHECK_WITH(OutOfMemoryError, block.has_value(), engine_.memory().out_of_memory(device_));
    addresses_[slot] = block->address;
  }
  void free(int index) {
    const auto slot = static_cast<std::size_t>(index);
    if (slot >= addresses_.size()) return;
    engine_.memory().free(device_, std::exchange(addresses_[slot], 0));
  }

 private:
  Engine& engine_;
  int device_;
  std::uint32_t stream_;
  OpName& op_;
  c10::SmallVector<std::uint64_t, 8> addresses_;
};

// Libraries' handles belong to threads. On a real GPU backward runs on the device's own thread,
// which has handles of its own; here it runs on the caller's.
constexpr std::uint64_t kBackwardThread = ~std::uint64_t{0};

std::uint64_t handle_owner() noexcept {
  if (torch::autograd::get_current_graph_task_id() >= 0) return kBackwardThread;
  static std::atomic<std::uint64_t> last{0};
  thread_local const std::uint64_t mine = ++last;
  return mine;
}

// An out= argument beside virtual tensors of the host may be a real one. An empty one was made for
// this result, as torch does for ops that it has only with out=, and becomes virtual.
void resize(Engine& engine, const at::Tensor& tensor, const Resized& resized) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (record_of(tensor) != nullptr || !tensor.is_cpu()) {
    return set_sizes(engine, tensor, resized.sizes, resized.strides);
  }
  if (impl->unsafe_storage().nbytes() == 0) {
    impl->set_storage_keep_dtype(make_host_storage(engine, 0, /*pinned=*/false));
    match_keys(tensor);
    return set_sizes(engine, tensor, resized.sizes, resized.strides);
  }
  const HostRun host;
  tensor.resize_(resized.sizes);
}

class ResultMaker {
 public:
  ResultMaker(const Call& call, c10::ArrayRef<c10::Storage> fresh) : call_(call), fresh_(fresh) {}

  at::Tensor tensor(const Output& output) const {
    const auto source = static_cast<std::size_t>(output.source);
    switch (output.kind) {
      case Output::Kind::kFresh:
        return make(fresh_[source], output.layout);
      case Output::Kind::kArgument:
        return *call_.tensors[source];
      case Output::Kind::kView:
        return make(call_.tensors[source]->storage(), output.layout);
      default:
        return {};
    }
  }
  c10::IValue value(const Output& output) const {
    if (output.kind == Output::Kind::kValue) return output.value;
    if (output.kind != Output::Kind::kList) return tensor(output);
    c10::List<at::Tensor> list;
    list.reserve(output.items.size());
    for (const Output& item : output.items) list.push_back(tensor(item));
    return list;
  }

 private:
  static at::Tensor make(const c10::Storage& storage, const Layout& layout) {
    return make_tensor(storage, layout.dtype, layout.sizes, layout.strides, layout.offset);
  }
  const Call& call_;
  c10::ArrayRef<c10::Storage> fresh_;
};

}  // namespace

void run_scratch(Engine& engine, int device, const OpCall& call, OpName& op) {
  Scratch scratch(engine, device, allocator_stream(ThisThread::stream(device)), op);
  const KernelState state = engine.kernel_state(kernel_switches());
  for (const Step& step : allocation_program(call, engine.profile(), state).steps) {
    const auto bytes = static_cast<std::uint64_t>(step.bytes.raw());
    if (step.kind == Step::Kind::kAlloc) scratch.allocate(step.index, bytes, step.certainty);
    if (step.kind == Step::Kind::kFree) scratch.free(step.index);
  }
}

torch::jit::Stack run_program(Engine& engine, const Call& call, OpName& op,
                              const ShapeEntry& entry) {
  c10::SmallVector<c10::Storage, 4> fresh(entry.fresh.size());
  const std::int64_t stream = call.device == kHost ? 0 : ThisThread::stream(call.device);
  {
    Scratch scratch(engine, call.device, allocator_stream(stream), op);
    for (const Step& step : entry.program) {
      const auto bytes = static_cast<std::uint64_t>(step.bytes.raw());
      switch (step.kind) {
        case Step::Kind::kOutput:
          fresh[static_cast<std::size_t>(step.index)] =
              make_storage(engine, call.device, bytes, &op, step.certainty);
          break;
        case Step::Kind::kAlloc:
          scratch.allocate(step.index, bytes, step.certainty);
          break;
        case Step::Kind::kFree:
          scratch.free(step.index);
          break;
        case Step::Kind::kWorkspace:
          engine.ensure_workspace(call.device, step.scope == WorkspaceScope::kDevice ? 0 : stream,
                                  step.scope == WorkspaceScope::kDevice ? 0 : handle_owner(), step,
                                  &op);
          break;
      }
    }
  }
  for (const Resized& resized : entry.resized) {
    resize(engine, *call.tensors[static_cast<std::size_t>(resized.tensor)], resized);
  }
  const ResultMaker maker(call, fresh);
  torch::jit::Stack results;
  results.reserve(entry.outputs.size());
  for (const Output& output : entry.outputs) results.push_back(maker.value(output));
  return results;
}

}  // namespace peakline::vgpu
