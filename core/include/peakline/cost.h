// How long an op takes on a GPU: its kernels one after another, each bound by what it computes, by
// what it moves, or by its own start and end.
#pragma once

#include <cstdint>
#include <string_view>

#include <peakline/device_profile.h>
#include <peakline/kernel_memory.h>

namespace peakline {

enum class TimeBound : std::uint8_t { kLatency, kCompute, kMemory, kNetwork };

// "latency", "compute", "memory", "network".
std::string_view to_text(TimeBound bound) noexcept;

struct OpTime {
  double us = 0;     // on the GPU; 0: no kernel runs
  double flops = 0;  // of matrix products, attention and convolutions: what utilisation counts
  double bytes = 0;  // read and written, as the kernels do it
  int kernels = 0;
  double issue = 1;    // what the host does for it, in ops that only start a kernel
  double host_us = 0;  // what the host computes itself: an op on its own tensors
  TimeBound bound = TimeBound::kLatency;  // of its longest kernel
  bool guessed = false;                   // no rule: by the size of its tensors
};

// Thread-safe, pure. `call` is trusted as far as allocation_program trusts it.
OpTime op_time(const OpCall& call, const DeviceProfile& gpu, const KernelState& state);

// A copy between a GPU and the host. Pinned memory goes at the link's rate; from and to other memory
// the driver copies by way of a buffer of its own.
OpTime host_copy_time(double bytes, bool pinned, const DeviceProfile& gpu);

// A collective of `ranks` GPUs in machines of `per_node`. `bytes` is the largest tensor of the call:
// what is gathered, reduced or exchanged.
enum class CollectiveKind : std::uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,  // reduce, scatter and gather too
  kAllToAll,
  kPointToPoint,
  kBarrier,
};
// By name, as c10d and the functional collectives have them: "c10d::allreduce_",
// "_c10d_functional::all_gather_into_tensor".
CollectiveKind collective_kind(std::string_view op) noexcept;
OpTime collective_time(CollectiveKind kind, double bytes, int ranks, int per_node,
                       const DeviceProfile& gpu);

}  // namespace peakline
