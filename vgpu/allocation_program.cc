// What an op allocates, and in which order: asked once per op and shapes.
#include "vgpu/op_call.h"
#include "vgpu/shape_builder.h"

namespace peakline::vgpu {
namespace {

// The tensors of the outputs in order, lists flattened, as the kernel rules number them.
std::vector<Output*> flat_outputs(ShapeEntry& entry) {
  std::vector<Output*> flat;
  for (Output& output : entry.outputs) {
    if (output.kind == Output::Kind::kValue) continue;
    if (output.kind != Output::Kind::kList) {
      flat.push_back(&output);
      continue;
    }
    for (Output& item : output.items) flat.push_back(&item);
  }
  return flat;
}

// Where the GPU's kernel gives another layout than torch's shape function says.
void apply(const OutputChange& change, const std::vector<Output*>& flat, ShapeEntry& entry) {
  const auto index = static_cast<std::size_t>(change.index);
  if (index >= flat.size() || !change.meta.defined) return;
  Output& output = *flat[index];
  if (output.kind == Output::Kind::kUndefined) {
    output.kind = Output::Kind::kFresh;
    output.source = static_cast<int>(entry.fresh.size());
    entry.fresh.push_back(0);
  }
  if (output.kind != Output::Kind::kFresh) return;
  output.layout.dtype = c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(change.meta.dtype));
  output.layout.sizes.assign(change.meta.sizes.begin(), change.meta.sizes.end());
  output.layout.strides.assign(change.meta.strides.begin(), change.meta.strides.end());
  output.layout.offset = 0;
  entry.fresh[static_cast<std::size_t>(output.source)] =
      storage_bytes(output.layout.sizes, output.layout.strides, output.layout.dtype.itemsize());
}

class ProgramWriter {
 public:
  explicit ProgramWriter(ShapeEntry& entry) : entry_(entry), done_(entry.fresh.size(), false) {}

  void output(int storage, Step step) {
    const auto at = static_cast<std::size_t>(storage);
    if (done_[at]) return;
    done_[at] = true;
    step.kind = Step::Kind::kOutput;
    step.index = storage;
    if (step.bytes < Bytes{}) step.bytes = Bytes(static_cast<std::int64_t>(entry_.fresh[at]));
    entry_.program.push_back(step);
  }
  // Outputs that no rule has placed.
  void rest() {
    for (std::size_t i = 0; i < done_.size(); ++i) {
      Step step;
      step.bytes = Bytes(-1);
      output(static_cast<int>(i), step);
    }
  }

 private:
  ShapeEntry& entry_;
  std::vector<bool> done_;
};

}  // namespace

void add_program(const Call& call, Engine& engine, ShapeEntry& entry) {
  const KernelState state = engine.kernel_state(kernel_switches());
  const OpCall op = op_call(call, entry, state.switches);
  const AllocationProgram program = allocation_program(op, engine.profile(), state);
  if (engine.clock().on()) entry.time = op_time(op, engine.profile(), state);
  if (op.convolution && op.convolution->backend == Convolution::Backend::kCudnn) {
    engine.note_cudnn();
  }
  if (program.certainty == Certainty::kOutputsOnly) engine.note_outputs_only(call.info.name.text);
  const std::vector<Output*> flat = flat_outputs(entry);
  for (const OutputChange& change : program.changes) apply(change, flat, entry);
  ProgramWriter writer(entry);
  for (const Step& step : program.steps) {
    if (step.kind != Step::Kind::kOutput) {
      entry.program.push_back(step);
      continue;
    }
    const auto index = static_cast<std::size_t>(step.index);
    if (index < flat.size() && flat[index]->kind == Output::Kind::kFresh) {
      writer.output(flat[index]->source, step);
    }
  }
  writer.rest();
}

}  // namespace peakline::vgpu
