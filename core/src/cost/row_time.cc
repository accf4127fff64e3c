// Ops with a block for each row: softmax, norms, losses.
#include "cost/rules.h"

namespace peakline::cost {
namespace {

struct Rows {
  double count = 0;
  double length = 0;
  double element = 4;  // bytes
};

Rows rows_of(const TensorMeta& tensor, double length) {
  Rows rows;
  rows.length = std::max(1.0, length);
  rows.count = static_cast<double>(tensor.numel()) / rows.length;
  rows.element = static_cast<double>(size_of(tensor.dtype));
  return rows;
}

Rows last_dimension(const TensorMeta& tensor) {
  return rows_of(tensor, tensor.sizes.empty() ? 1 : static_cast<double>(tensor.sizes.back()));
}

// How the blocks of a kernel treat a row.
struct Treatment {
  double passes = 2;         // reads and writes of the row
  double threads = 256;      // of a block
  double per_thread = 4;     // elements of a thread's load
  double trips = 2;          // times that a block goes through its row
  double trip_us = 0.25;     // one round of loads, with what depends on it
  double instructions = 20;  // for each element
  bool block_starts = true;  // false: several rows share a block's start
};

void add_rows(const Rows& rows, const Treatment& how, OpTimer& op) {
  const Machine& machine = op.machine();
  const double bytes = rows.count * rows.length * rows.element * how.passes;
  const double resident = std::max(
      1.0, std::floor(static_cast<double>(machine.gpu().max_threads_per_sm) / how.threads));
  const double waves = ceil_div(rows.count, machine.sms() * resident);
  const double rounds = ceil_div(rows.length, how.threads * how.per_thread) * how.trips;
  const double start = how.block_starts ? machine.rates().block_us : 0;
  const double row_us = rounds * how.trip_us;
  // What one multiprocessor takes in, for the rows that it gets.
  const double own_rows = ceil_div(rows.count, machine.sms());
  const double own_us =
      own_rows * rows.length * rows.element * how.passes / machine.rates().sm_gbps / 1e3;
  op.add(
      {.compute_us = std::max(machine.instructions_us(rows.count * rows.length * how.instructions),
                              std::max(waves * (start + row_us), own_us)),
       .memory_us = machine.row_memory_us(bytes)},
      bytes);
}

bool vector_loads(const Rows& rows) { return std::fmod(rows.length, 4) == 0; }

// Over a dimension that is not the innermost a thread walks its own numbers, each load after the one
// before: three times forward, twice in the gradient.
void add_softmax_across(const Rows& rows, double tensors, OpTimer& op) {
  constexpr double kLoadUs = 0.24;
  const double bytes = rows.count * rows.length * rows.element * (tensors + 1);
  op.add({.compute_us = rows.length * kLoadUs * (tensors > 2 ? 1.5 : 3),
          .memory_us = op.machine().row_memory_us(bytes)},
         bytes);
}

void add_softmax(const TensorMeta& input, std::int64_t dim, double tensors, OpTimer& op) {
  const auto rank = static_cast<std::int64_t>(input.sizes.size());
  if (dim < 0) dim += rank;
  const double length =
      dim >= 0 && dim < rank ? static_cast<double>(input.sizes[static_cast<std::size_t>(dim)]) : 1;
  const Rows rows = rows_of(input, length);
  const bool across =
      dim >= 0 && dim < rank && length > 1 && input.strides[static_cast<std::size_t>(dim)] > 1;
  if (across) return add_softmax_across(rows, tensors, op);
  Treatment how;
  how.passes = tensors;
  how.instructions = vector_loads(rows) ? 60 : 95;
  if (length <= 1024) {
    // A warp keeps its rows in registers.
    how.threads = 32;
    how.per_thread = 32;
    how.trips = 1;
    how.block_starts = false;
  } else {
    const double shared = static_cast<double>(op.machine().gpu().shared_memory_per_block.raw());
    // A row that does not fit into shared memory is read again.
    if (length * rows.element > shared) how.passes += 1;
    how.threads = 1024;
    how.trip_us = 0.43;
  }
  add_rows(rows, how, op);
}

void add_layer_norm(const TensorMeta& input, double length, double trip_us, OpTimer& op) {
  const Rows rows = rows_of(input, length);
  Treatment how;
  if (vector_loads(rows)) {
    // The row is read again for its values.
    how = {.passes = 3, .threads = 128, .per_thread = 4, .trips = 2, .trip_us = trip_us};
    add_rows(rows, how, op);
    return;
  }
  // Moments first, then the values, each with a block for a row.
  how = {.passes = 1,
         .threads = 512,
         .per_thread = 1,
         .trips = 1,
         .trip_us = trip_us,
         .instructions = 60};
  add_rows(rows, how, op);
  how.passes = 2;
  how.threads = 256;
  add_rows(rows, how, op);
}

// Gradients of weight and bias: 32 columns are one block's, which walks all rows, 256 at a time, unless
// columns are few and rows very many (torch's GammaBetaBackward).
void add_column_sums(const Rows& rows, double bytes, OpTimer& op) {
  const Machine& machine = op.machine();
  constexpr double kColumns = 32;
  constexpr double kRows = 256;
  const double round_us = rows.element < 4 ? 0.8 : 1.05;
  constexpr double kVeryMany = 65536;
  const bool split = rows.count > kVeryMany && rows.length / kColumns < machine.sms() / 2;
  const double turns = ceil_div(ceil_div(rows.length, kColumns), machine.sms() * 2);
  op.add({.compute_us = split ? 0 : ceil_div(rows.count, kRows) * round_us * turns,
          .memory_us = machine.row_memory_us(bytes),
          .latency_us = split ? machine.rates().reduce_us : 0},
         bytes);
  if (split) op.add({.latency_us = 2}, 0);
}

// Of the input by rows, of weight and bias by columns.
void add_layer_norm_backward(const TensorMeta& input, double length, bool weights, OpTimer& op) {
  const Rows rows = rows_of(input, length);
  const bool wide = vector_loads(rows);
  const double threads = wide ? std::clamp(ceil_div(length / 4, 32) * 32, 32.0, 512.0) : 512;
  // A row longer than its block's registers is loaded again.
  const bool again = wide && length > threads * 4;
  const Treatment how{.passes = 3,
                      .threads = threads,
                      .per_thread = wide ? 4.0 : 1.0,
                      .trips = 2,
                      .trip_us = again ? 0.85 : 0.3,
                      .instructions = wide ? 60.0 : 110.0,
                      .block_starts = wide};
  add_rows(rows, how, op);
  if (weights) add_column_sums(rows, 2 * distinct_bytes(input), op);
}

double product(const std::vector<std::int64_t>& sizes) {
  double all = 1;
  for (const std::int64_t size : sizes) all *= static_cast<double>(size);
  return all;
}

void add_group_norm(const CallView& view, bool backward, OpTimer& op) {
  const TensorMeta& input = view.args.tensor(backward ? 1 : 0);
  const double groups = static_cast<double>(view.args.integer(backward ? 8 : 6, 1));
  const double batch = input.sizes.empty() ? 1 : static_cast<double>(input.sizes[0]);
  const double length = static_cast<double>(input.numel()) / std::max(1.0, groups * batch);
  Treatment how{.passes = backward ? 2.0 : 1.0,
                .threads = 512,
                .per_thread = 1,
                .trips = 1,
                .trip_us = 0.1,
                .instructions = backward ? 65.0 : 60.0};
  add_rows(rows_of(input, length), how, op);
  if (backward) op.add({}, 0);  // a group's numbers
  const double bytes = (backward ? 3 : 2) * distinct_bytes(input);
  // In the gradient numbers of 16 bits meet others, and are converted one at a time.
  const double work = !backward ? 80 : is_reduced_float(input.dtype) ? 247 : 105;
  op.add({.compute_us = op.machine().instructions_us(static_cast<double>(input.numel()) * work),
          .memory_us = op.machine().memory_us(bytes)},
         bytes);
}

bool norms(const CallView& view, OpTimer& op) {
  const std::string_view name = view.name;
  const kernels::OpArgs& args = view.args;
  if (name == "native_layer_norm") {
    add_layer_norm(args.tensor(0), product(args.integers(1)), 0.27, op);
  } else if (name == "native_layer_norm_backward") {
    add_layer_norm_backward(args.tensor(1), product(args.integers(2)), args.mask(7, 1), op);
  } else if (name == "_fused_rms_norm" || name == "rms_norm") {
    add_layer_norm(args.tensor(0), product(args.integers(1)), 0.18, op);
  } else if (name == "_fused_rms_norm_backward") {
    add_layer_norm_backward(args.tensor(1), product(args.integers(2)), args.mask(5, 1), op);
  } else if (name == "native_group_norm") {
    add_group_norm(view, false, op);
  } else if (name == "native_group_norm_backward") {
    add_group_norm(view, true, op);
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool row_rules(const CallView& view, OpTimer& op) {
  const std::string_view name = view.name;
  const kernels::OpArgs& args = view.args;
  if (name == "_softmax" || name == "_log_softmax" || name == "softmax") {
    add_softmax(args.tensor(0), args.integer(1, -1), 2, op);
  } else if (name == "_softmax_backward_data" || name == "_log_softmax_backward_data") {
    add_softmax(args.tensor(0), args.integer(2, -1), 3, op);
  } else if (name == "nll_loss_forward" || name == "nll_loss2d_forward") {
    // One element of each row, added up by a single block.
    const Rows rows = last_dimension(args.tensor(0));
    op.add({.compute_us = ceil_div(rows.count, 1024) * 0.35,
            .memory_us = op.machine().memory_us(rows.count * 40),
            .latency_us = 1.2},
           rows.count * 40);
  } else if (name == "nll_loss_backward" || name == "nll_loss2d_backward") {
    const double bytes = distinct_bytes(args.tensor(1));
    op.add({.memory_us = op.machine().memory_us(bytes)}, bytes);  // zeros everywhere
    op.add({.latency_us = 1}, 0);                                 // and one element a row
  } else {
    return norms(view, op);
  }
  return true;
}

}  // namespace peakline::cost
