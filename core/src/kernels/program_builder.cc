#include "kernels/program_builder.h"

#include <algorithm>
#include <utility>

namespace peakline::kernels {

void ProgramBuilder::push(Step step, Certainty certainty) {
  step.certainty = certainty;
  program_.steps.push_back(step);
  program_.certainty = std::max(program_.certainty, certainty);
}

void ProgramBuilder::output(std::size_t index) { output_of(index, -1, Certainty::kExact); }

void ProgramBuilder::output_of(std::size_t index, std::int64_t bytes, Certainty certainty) {
  if (index >= written_.size() || written_[index]) return;
  written_[index] = true;
  if (!call_.outputs[index].fresh) return;
  Step step;
  step.kind = Step::Kind::kOutput;
  step.index = static_cast<int>(index);
  step.bytes = Bytes(bytes);
  push(step, bytes >= 0 ? std::max(certainty, best_) : certainty);
}

void ProgramBuilder::outputs(Certainty certainty) {
  for (std::size_t i = 0; i < written_.size(); ++i) output_of(i, -1, certainty);
}

int ProgramBuilder::alloc(std::int64_t bytes, Certainty certainty) {
  if (bytes <= 0) return -1;
  Step step;
  step.kind = Step::Kind::kAlloc;
  step.index = static_cast<int>(live_.size());
  step.bytes = Bytes(bytes);
  push(step, std::max(certainty, best_));
  live_.push_back(true);
  return step.index;
}

void ProgramBuilder::free(int block) {
  if (block < 0 || !live_[static_cast<std::size_t>(block)]) return;
  live_[static_cast<std::size_t>(block)] = false;
  Step step;
  step.kind = Step::Kind::kFree;
  step.index = block;
  program_.steps.push_back(step);
}

void ProgramBuilder::workspace(std::string_view key, std::int64_t bytes, WorkspaceScope scope) {
  if (bytes <= 0) return;
  Step step;
  step.kind = Step::Kind::kWorkspace;
  step.bytes = Bytes(bytes);
  step.key = key;
  step.scope = scope;
  push(step, best_);
}

void ProgramBuilder::change_output(std::size_t index, TensorMeta meta) {
  program_.changes.push_back({static_cast<int>(index), std::move(meta)});
}

AllocationProgram ProgramBuilder::finish() {
  outputs();
  for (std::size_t i = live_.size(); i-- > 0;) free(static_cast<int>(i));
  return std::move(program_);
}

}  // namespace peakline::kernels
