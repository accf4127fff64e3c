// Ops that torch computes by the same code on the CPU and on a GPU: it is made of other ops, and
// those allocate as they do on the GPU. Which ops these are comes from torch's own list
// (tools/list_cuda_ops.py).
#pragma once

#include <torch/library.h>

#include <set>
#include <span>
#include <string>

namespace peakline::vgpu {

struct ListedOp {
  const char* name;
  bool is_shared;  // else CUDA has code of its own
};

// Runs the kernel that `kKey` has for the op.
template <c10::DispatchKey kKey>
void run_shared(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  op.callBoxedForDispatchKey(kKey, *stack);
}

// One sentence, for an op whose own code on CUDA nobody has modelled.
void refuse_own_code(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                     torch::jit::Stack* stack);
// One sentence, for an op that a real GPU has no kernel for either.
void refuse_without_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                           torch::jit::Stack* stack);

bool is_op(const std::string& name);

// Adds all of `ops` but those in `written`: shared ones run the code that `kKey` has.
template <c10::DispatchKey kKey>
void add_shared(torch::Library& aten, std::span<const ListedOp> ops,
                const std::set<std::string>& written) {
  for (const ListedOp& listed : ops) {
    if (written.contains(listed.name) || !is_op(listed.name)) continue;
    aten.impl(listed.name, listed.is_shared
                               ? torch::CppFunction::makeFromBoxedFunction<&run_shared<kKey>>()
                               : torch::CppFunction::makeFromBoxedFunction<&refuse_own_code>());
  }
}

}  // namespace peakline::vgpu
