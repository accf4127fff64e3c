// Lookups, scatters, sorting and scans.
#include "cost/rules.h"

namespace peakline::cost {
namespace {

double elements(const TensorMeta& tensor) {
  return tensor.defined ? static_cast<double>(tensor.numel()) : 0;
}
double element_bytes(const TensorMeta& tensor) {
  return static_cast<double>(size_of(tensor.dtype));
}
double last(const TensorMeta& tensor) {
  return tensor.sizes.empty() ? 1 : std::max(1.0, static_cast<double>(tensor.sizes.back()));
}

// `count` elements found by index, each with the arithmetic of an address.
void add_lookup(double count, double bytes, double instructions, OpTimer& op) {
  op.add({.compute_us = op.machine().instructions_us(count * instructions),
          .memory_us = op.machine().memory_us(bytes),
          .latency_us = op.machine().rates().block_us},
         bytes);
}

// The gradient of an embedding table: zeros, then the rows sorted by index, runs of equal ones found,
// and added up piece by piece.
void add_embedding_backward(const CallView& view, OpTimer& op) {
  const Machine& machine = op.machine();
  const TensorMeta& gradient = view.args.tensor(0);
  const double table = bytes_written(view);
  const double rows = elements(view.args.tensor(1));
  op.add({.memory_us = machine.memory_us(table)}, table);
  const double width = last(gradient);
  const double moved = rows * width * element_bytes(gradient) * 3;
  if (rows <= 3072) {
    // Few: each row of indices is compared with all before it.
    op.add({.compute_us = rows * 0.012, .memory_us = machine.memory_us(moved), .latency_us = 5},
           moved);
    return;
  }
  // Radix sort of 64-bit indices with their places, eight bits at a time, and as many counters zeroed.
  constexpr int kPasses = 8;
  for (int pass = 0; pass < kPasses; ++pass) {
    op.add({.memory_us = machine.memory_us(rows * 32), .latency_us = 5}, rows * 32);
  }
  // Places, histogram and its sums; runs, their pieces, and where these begin.
  constexpr int kSmall = 11;
  for (int i = 0; i < kSmall; ++i) op.add({.latency_us = 0.3}, 0);
  // Sums of pieces, and of a row's pieces. Rows that come again and again are read in longer runs.
  const double words =
      view.args.out(0).sizes.empty() ? rows : static_cast<double>(view.args.out(0).sizes.front());
  const double apart = std::clamp(words / rows, 0.2, 1.0);
  for (int stage = 0; stage < 2; ++stage) {
    op.add({.compute_us = machine.instructions_us(rows * width * 250 * apart),
            .memory_us = machine.memory_us(moved)},
           moved);
  }
}

void add_sort(const TensorMeta& input, OpTimer& op) {
  const Machine& machine = op.machine();
  const double length = last(input);
  const double rows = elements(input) / length;
  const double pair = element_bytes(input) + 8;
  const double all = elements(input);
  if (length <= 1) {
    op.add({.memory_us = machine.memory_us(all * pair)}, all * pair);
    op.add({}, 0);
    return;
  }
  if (length <= 32) {
    // A warp sorts a row.
    op.add({.compute_us = machine.instructions_us(all * 1400), .latency_us = 4}, all * pair * 2);
    op.add({.memory_us = machine.memory_us(all * pair)}, all * pair);
    return;
  }
  if (length <= 4096) {
    // A block sorts a row in shared memory, by digits.
    const double digits = ceil_div(element_bytes(input) * 8, 4);
    const double rounds = ceil_div(length, 1024) * ceil_div(rows, machine.sms() * 2);
    op.add(
        {.compute_us = std::max(rounds * digits * 1.5, machine.instructions_us(all * digits * 90)),
         .latency_us = 8},
        all * pair * 2);
    op.add({.memory_us = machine.memory_us(all * pair)}, all * pair);
    return;
  }
  // A sort of everything by segment, digit after digit: histogram, scan, move.
  const double digits = ceil_div(element_bytes(input) * 8, 8);
  for (int pass = 0; pass < static_cast<int>(digits); ++pass) {
    const double moved = all * pair * 3;
    const double longest = rows < machine.sms() ? length * 0.55e-3 : 0;
    op.add({.compute_us = std::max(longest, machine.instructions_us(all * 560)),
            .memory_us = machine.row_memory_us(moved),
            .latency_us = 6},
           moved);
  }
  op.add({.memory_us = machine.memory_us(all * pair)}, all * pair);
}

// A block walks its rows, in pieces that wait for each other.
void add_scan(const TensorMeta& input, OpTimer& op) {
  const Machine& machine = op.machine();
  const double length = last(input);
  const double rows = elements(input) / length;
  const double pieces = ceil_div(length, 512);
  constexpr double kPieceUs = 0.62;
  const double waves = ceil_div(rows, machine.sms() * 4 * (length <= 128 ? 4 : 1));
  const double bytes = 2 * distinct_bytes(input);
  op.add({.compute_us = std::max(pieces * kPieceUs * std::max(1.0, waves * 0.6),
                                 machine.instructions_us(elements(input) * 140)),
          .memory_us = machine.row_memory_us(bytes)},
         bytes);
}

double select_rows_bytes(const CallView& view) { return 2 * bytes_written(view); }

}  // namespace

bool indexing_rules(const CallView& view, OpTimer& op) {
  const std::string_view name = view.name;
  const kernels::OpArgs& args = view.args;
  const double written = elements(args.out(0));
  if (name == "gather" || name == "take" || name == "take_along_dim") {
    // Positions are checked and taken apart by a kernel of general strides.
    op.add({.compute_us = op.machine().instructions_us(written * 110),
            .memory_us = op.machine().memory_us(2 * bytes_written(view) + written * 8),
            .latency_us = 3},
           2 * bytes_written(view) + written * 8);
  } else if (name == "embedding" || name == "index_select") {
    const double bytes =
        select_rows_bytes(view) + distinct_bytes(args.tensor(name == "embedding" ? 1 : 2));
    op.add({.compute_us = op.machine().instructions_us(written * 12),
            .memory_us = op.machine().memory_us(bytes)},
           bytes);
  } else if (name == "index" || name == "_unsafe_index" || name == "masked_select" ||
             name == "nonzero") {
    add_lookup(written, 2 * bytes_written(view) + bytes_read(view) * (name == "index" ? 0 : 1), 90,
               op);
  } else if (name == "_embedding_bag" || name == "_embedding_bag_forward_only") {
    // Every index brings its row.
    const double words = elements(args.tensor(1)) * last(args.tensor(0));
    const double bytes = words * element_bytes(args.tensor(0)) + bytes_written(view);
    op.add({.compute_us = op.machine().instructions_us(words * 100),
            .memory_us = op.machine().row_memory_us(bytes)},
           bytes);
  } else if (name == "embedding_dense_backward" || name == "_embedding_bag_backward" ||
             name == "_embedding_bag_dense_backward") {
    add_embedding_backward(view, op);
  } else if (name == "index_add" || name == "scatter_add" || name == "scatter_reduce" ||
             name == "index_put" || name == "_index_put_impl" || name == "scatter" ||
             name == "index_copy" || name == "index_fill" || name == "masked_scatter") {
    // Atomic additions where two sources may meet.
    const TensorMeta& source = name.starts_with("index_put") || name.starts_with("_index_put")
                                   ? args.tensor(2)
                                   : args.tensor(3);
    const double count = source.defined ? elements(source) : written;
    if (!view.in_place) {
      const double copied = 2 * bytes_written(view);
      op.add({.memory_us = op.machine().memory_us(copied)}, copied);
    }
    add_lookup(count, count * element_bytes(args.out(0)) * 3, 195, op);
  } else if (name == "sort" || name == "argsort" || name == "msort") {
    add_sort(args.tensor(0), op);
  } else if (name == "topk" || name == "kthvalue") {
    const double bytes = distinct_bytes(args.tensor(0)) * 3;
    op.add({.compute_us = op.machine().instructions_us(elements(args.tensor(0)) * 100),
            .memory_us = op.machine().row_memory_us(bytes),
            .latency_us = 12},
           bytes);
  } else if (name == "cumsum" || name == "cumprod" || name == "cummax" || name == "logcumsumexp") {
    add_scan(args.tensor(0), op);
  } else {
    return false;
  }
  return true;
}

}  // namespace peakline::cost
