// How torch launches a reduction, and the memory that blocks exchange partial results through.
// Source: aten/src/ATen/native/cuda/Reduce.cuh (setReduceConfig, gpu_reduce_kernel).
#pragma once

#include <cstdint>
#include <vector>

#include <peakline/kernel_memory.h>

#include "kernels/program_builder.h"

namespace peakline::kernels {

// What is reduced: an input, the dimensions that go away, and the kernel's types.
struct Reduction {
  TensorMeta input;
  std::vector<std::int64_t> dims;     // of the input; none given means all
  std::int64_t accumulator_size = 4;  // bytes of the type partial results have
  std::int64_t output_size = 4;       // bytes of an output element
  bool accumulates_in_output = true;  // the output's type can hold partial results
  int input_vector = 4;               // elements a thread loads at once along the input
  int unroll = 4;                     // vt0
};

// The loop over a reduction: dimensions that are left after sorting and joining, fastest first, the
// reduced ones before the others. Strides in bytes.
struct ReduceLoop {
  struct Dim {
    std::int64_t size = 1;
    std::int64_t in_stride = 0;
    std::int64_t out_stride = 0;
    bool reduced = false;
  };
  std::vector<Dim> dims;
  std::int64_t offset = 0;  // of the input's first element, in elements
};
ReduceLoop reduce_loop(const Reduction& reduction);

// Scratch for one launch: staging memory and semaphores. Zero when one block per output is enough.
struct ReduceScratch {
  std::int64_t staging = 0;
  std::int64_t semaphores = 0;
};
ReduceScratch reduce_scratch(const ReduceLoop& loop, const Reduction& reduction,
                             const DeviceProfile& gpu);

// The steps of the whole reduction, whose output is allocated already.
void reduce(ProgramBuilder& program, const Reduction& reduction, const DeviceProfile& gpu);

}  // namespace peakline::kernels
