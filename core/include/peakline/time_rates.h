// How fast one kind of GPU and its host are: the physical numbers behind every predicted time.
#pragma once

namespace peakline {

// Peaks are the data sheet's, dense; shares are what kernels reach of them. Part of a DeviceProfile,
// which knows where each number comes from. A number below zero was not given.
struct TimeRates {
  // Arithmetic: dense peaks in TFLOP/s, and the share of a peak that long kernels sustain (power and
  // clocks included).
  double tensor16_tflops = -1;  // bf16 and fp16 on tensor cores
  double tensor8_tflops = -1;   // fp8 and int8
  double tf32_tflops = -1;
  double f32_tflops = -1;  // without tensor cores
  double f64_tflops = -1;
  double tensor_share = -1;  // of tensor16, tensor8 and tf32
  double vector_share = -1;  // of f32 and f64 in matrix products
  double sm_clock_ghz = -1;  // for instructions that are counted

  // Memory, in GB/s.
  double dram_gbps = -1;   // the data sheet's
  double dram_share = -1;  // of it, for kernels that stream
  double row_share = -1;   // of it, for kernels that read a row before they write it
  double l2_gbps = -1;
  double sm_gbps = -1;  // what one multiprocessor takes from L2

  // Times, in microseconds.
  double kernel_us = -1;  // an empty kernel in a full queue, until the next one starts
  double gemm_us = -1;    // a matrix product's start and end: loading, pipeline, epilogue
  double reduce_us = -1;  // a second stage over all blocks of one kernel
  double block_us = -1;   // a block that starts, synchronises a few times, and ends
  double event_us = -1;   // between two events with nothing in between

  // The way to other memories.
  double pcie_gbps = -1;
  double pcie_us = -1;
  double pageable_gbps = -1;  // from and to memory that is not pinned
  double nvlink_gbps = -1;    // of one GPU, one direction
  double nvlink_us = -1;      // for each step of a collective
  double network_gbps = -1;   // of one GPU, one direction
  double network_us = -1;

  // The host that issues the work: the machine that trains, not the one that predicts.
  double host_op_us = -1;        // an op that only starts a kernel, called by the program
  double host_plain_us = -1;     // the same where nothing is recorded for a backward pass
  double host_backward_us = -1;  // one that autograd calls, with its share of the engine
  double host_python_us = -1;    // a call of a Python function: the Python between ops
  double host_launch_us = -1;    // each kernel more
  double host_sync_us = -1;      // waiting for the GPU, once it is done
  double host_gbps = -1;         // what ops on host tensors read and write
  double host_random_ns = -1;    // a random number that the host draws into a tensor

  bool operator==(const TimeRates&) const = default;
};

}  // namespace peakline
