// Writes an AllocationProgram step by step, as the op's own code would run.
#pragma once

#include <string_view>
#include <vector>

#include <peakline/kernel_memory.h>

namespace peakline::kernels {

// Not thread-safe; one per program. finish() may be called once.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(const OpCall& call) : call_(call), written_(call.outputs.size(), false) {}

  // Allocates output `index`; again, or of an output that is not fresh, is no step.
  void output(std::size_t index);
  // All outputs that have no step yet, in order.
  void outputs(Certainty certainty = Certainty::kExact);
  // A scratch block; nothing for zero bytes (torch allocates none), and -1 comes back.
  int alloc(std::int64_t bytes, Certainty certainty = Certainty::kExact);
  void free(int block);
  // A scratch block that lives for a moment.
  void flash(std::int64_t bytes, Certainty certainty = Certainty::kExact) {
    free(alloc(bytes, certainty));
  }
  void workspace(std::string_view key, std::int64_t bytes, WorkspaceScope scope);
  void change_output(std::size_t index, TensorMeta meta);
  // The storage of output `index` is this large, whatever its metadata says.
  void output_of(std::size_t index, std::int64_t bytes, Certainty certainty);
  // From here on nothing that a rule says is surer than this: scratch, workspaces, and outputs whose
  // size is not that of their metadata.
  void scratch_at_best(Certainty certainty) { best_ = certainty; }

  AllocationProgram finish();

 private:
  void push(Step step, Certainty certainty);

  const OpCall& call_;
  AllocationProgram program_;
  Certainty best_ = Certainty::kExact;
  std::vector<bool> written_;
  std::vector<bool> live_;
};

// A scratch tensor: allocated here, freed at the end of the scope or by reset().
class Scratch {
 public:
  Scratch(ProgramBuilder& program, std::int64_t bytes, Certainty certainty = Certainty::kExact)
      : program_(program), block_(program.alloc(bytes, certainty)) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { reset(); }
  void reset() {
    program_.free(block_);
    block_ = -1;
  }

 private:
  ProgramBuilder& program_;
  int block_;
};

}  // namespace peakline::kernels
