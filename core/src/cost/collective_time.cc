// Collectives as NCCL's rings carry them out: steps, each with a latency, and bytes over the slowest
// link of the ring.
#include <algorithm>
#include <cmath>

#include <peakline/cost.h>

namespace peakline {
namespace {

struct Ring {
  double steps;  // each has to wait for the one before
  double share;  // of the bytes that pass each link
};

Ring ring_of(CollectiveKind kind, double ranks) {
  const double others = ranks - 1;
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return {2 * others, 2 * others / ranks};
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return {others, others / ranks};
    case CollectiveKind::kBroadcast:
      return {others, 1};
    case CollectiveKind::kPointToPoint:
      return {1, 1};
    case CollectiveKind::kBarrier:
      break;
  }
  return {2 * others, 0};
}

// Small messages go by trees, or by all-to-all within a machine: as many steps as doublings.
double least_steps(double ranks) { return 2 * std::ceil(std::log2(std::max(2.0, ranks))); }

bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

}  // namespace

CollectiveKind collective_kind(std::string_view op) noexcept {
  if (has(op, "alltoall") || has(op, "all_to_all")) return CollectiveKind::kAllToAll;
  if (has(op, "reduce_scatter")) return CollectiveKind::kReduceScatter;
  if (has(op, "allgather") || has(op, "all_gather")) return CollectiveKind::kAllGather;
  if (has(op, "allreduce") || has(op, "all_reduce")) return CollectiveKind::kAllReduce;
  if (has(op, "barrier")) return CollectiveKind::kBarrier;
  if (has(op, "send") || has(op, "recv")) return CollectiveKind::kPointToPoint;
  return CollectiveKind::kBroadcast;
}

OpTime collective_time(CollectiveKind kind, double bytes, int ranks, int per_node,
                       const DeviceProfile& gpu) {
  OpTime time;
  time.bytes = bytes;
  time.bound = TimeBound::kNetwork;
  if (ranks < 2) return time;
  const TimeRates& rates = gpu.time;
  const bool one_machine = ranks <= per_node;
  // A ring goes over the network once for each machine, all of whose GPUs bring a link of their own.
  const double rate =
      one_machine ? rates.nvlink_gbps : std::min(rates.network_gbps, rates.nvlink_gbps);
  const double machines = one_machine ? 0 : std::ceil(static_cast<double>(ranks) / per_node);
  const Ring ring = ring_of(kind, ranks);
  const double steps = std::min(ring.steps, least_steps(ranks));
  const double far = std::min(steps, one_machine ? 0 : least_steps(machines));
  time.us = rates.kernel_us + (steps - far) * rates.nvlink_us + far * rates.network_us +
            bytes * ring.share / rate / 1e3;
  time.kernels = 1;
  return time;
}

}  // namespace peakline
