#include "kernels/reduce_config.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace peakline::kernels {
namespace {

constexpr std::int64_t kMaxThreads = 512;
constexpr std::int64_t kMinValuesPerThread = 16;
constexpr std::int64_t kMaxValuesPerThread = 256;
constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

using Dim = ReduceLoop::Dim;

std::int64_t div_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t last_pow2(std::int64_t n) {
  std::int64_t power = 1;
  while (power * 2 <= n) power *= 2;
  return power;
}

// TensorIterator's order: negative when `a` should be the faster dimension, positive when `b`.
int compare(const Dim& a, const Dim& b) {
  if ((a.out_stride == 0) != (b.out_stride == 0)) return b.out_stride == 0 ? 1 : -1;
  for (const auto& [x, y] :
       {std::pair(a.out_stride, b.out_stride), std::pair(a.in_stride, b.in_stride)}) {
    if (x == 0 || y == 0) continue;
    if (x != y) return x < y ? -1 : 1;
    if (a.size > b.size) return 1;
  }
  return 0;
}

void sort_dims(std::vector<Dim>& dims) {
  for (int i = 1; i < static_cast<int>(dims.size()); ++i) {
    int at = i;
    for (int j = i - 1; j >= 0; --j) {
      const int order =
          compare(dims[static_cast<std::size_t>(j)], dims[static_cast<std::size_t>(at)]);
      if (order > 0) {
        std::swap(dims[static_cast<std::size_t>(j)], dims[static_cast<std::size_t>(at)]);
        at = j;
      } else if (order < 0) {
        break;
      }
    }
  }
}

bool joinable(const Dim& fast, const Dim& slow) {
  if (fast.size == 1 || slow.size == 1) return true;
  return fast.size * fast.in_stride == slow.in_stride &&
         fast.size * fast.out_stride == slow.out_stride && fast.reduced == slow.reduced;
}

void join_dims(std::vector<Dim>& dims) {
  std::vector<Dim> joined;
  for (const Dim& dim : dims) {
    if (!joined.empty() && joinable(joined.back(), dim)) {
      Dim& last = joined.back();
      if (last.size == 1) {
        const std::int64_t size = dim.size;
        if (size != 1) last = dim;
      } else {
        last.size *= dim.size;
      }
    } else {
      joined.push_back(dim);
    }
  }
  dims = std::move(joined);
}

struct Shape {
  std::int64_t outputs = 1;
  std::int64_t inputs = 1;
  std::size_t reduced_dims = 0;
};

Shape shape_of(const ReduceLoop& loop) {
  Shape shape;
  for (const Dim& dim : loop.dims) {
    (dim.reduced ? shape.inputs : shape.outputs) *= dim.size;
    shape.reduced_dims += dim.reduced ? 1 : 0;
  }
  return shape;
}

// How many neighbouring outputs a thread can work on, from the alignment of everything it reads.
std::int64_t output_vector(const ReduceLoop& loop, std::size_t fastest_output,
                           std::int64_t element) {
  std::int64_t vector = 4;
  const auto limit = [&](std::int64_t n) {
    while (n % vector != 0) vector /= 2;
  };
  limit(loop.offset);
  limit(loop.dims[fastest_output].size);
  for (std::size_t i = 0; i < loop.dims.size(); ++i) {
    if (i != fastest_output) limit(loop.dims[i].in_stride / element);
  }
  return vector;
}

// Threads and blocks, as setReduceConfig chooses them.
struct Launch {
  std::int64_t vector = 1;  // outputs per thread
  std::int64_t width = 1;
  std::int64_t height = 1;
  bool width_reduces = true;
  bool height_reduces = false;
  std::int64_t step_input = 1;
  std::int64_t step_output = 1;
  std::int64_t blocks_per_output = 1;

  void set_block(std::int64_t dim0, std::int64_t dim1, int warp) {
    const std::int64_t most = kMaxThreads / vector;
    const std::int64_t pow0 = dim0 < most ? last_pow2(std::max<std::int64_t>(dim0, 1)) : most;
    const std::int64_t pow1 = dim1 < most ? last_pow2(std::max<std::int64_t>(dim1, 1)) : most;
    width = std::min<std::int64_t>(pow0, warp);
    height = std::min(pow1, most / width);
    width = std::min(pow0, most / height);
  }
  [[nodiscard]] std::int64_t values_per_thread(std::int64_t inputs) const {
    return div_up(inputs, step_input);
  }
};

Launch plan(const ReduceLoop& loop, const Reduction& reduction, const DeviceProfile& gpu) {
  const Shape shape = shape_of(loop);
  const std::int64_t element = size_of(reduction.input.dtype);
  const std::size_t ndim = loop.dims.size();
  Launch launch;
  bool along_input = true;
  std::int64_t dim0 = 1;
  std::int64_t dim1 = 1;
  if (ndim > 0) {
    along_input = shape.reduced_dims == ndim ||
                  (shape.reduced_dims > 0 &&
                   loop.dims[0].in_stride < loop.dims[shape.reduced_dims].in_stride);
    dim0 = along_input ? shape.inputs : shape.outputs;
    dim1 = along_input ? shape.outputs : shape.inputs;
    const std::int64_t fastest =
        along_input ? loop.dims[0].in_stride : loop.dims[shape.reduced_dims].in_stride;
    if (fastest == element) {
      if (along_input && dim0 > 128 && ndim == 1 && reduction.unroll >= 4) {
        dim0 /= reduction.input_vector;
      } else if (!along_input) {
        launch.vector = output_vector(loop, shape.reduced_dims, element);
        dim0 /= launch.vector;
      }
    }
  }
  launch.width_reduces = along_input;
  launch.set_block(dim0, dim1, gpu.warp_size);
  (along_input ? launch.step_input : launch.step_output) *= launch.width;
  const std::int64_t values = launch.values_per_thread(shape.inputs);
  launch.height_reduces =
      values >= launch.height * kMinValuesPerThread || values >= kMaxValuesPerThread;
  (launch.height_reduces ? launch.step_input : launch.step_output) *= launch.height;
  return launch;
}

bool fits_32_bit(const ReduceLoop& loop) {
  std::int64_t count = 1;
  std::int64_t in = 1;
  std::int64_t out = 1;
  for (const Dim& dim : loop.dims) {
    count *= dim.size;
    in += (dim.size - 1) * dim.in_stride;
    out += (dim.size - 1) * dim.out_stride;
  }
  return count <= kMaxInt32 && in <= kMaxInt32 && out <= kMaxInt32;
}

std::size_t dim_to_split(const ReduceLoop& loop) {
  std::int64_t largest = -1;
  std::size_t found = 0;
  for (std::size_t i = loop.dims.size(); i-- > 0;) {
    const Dim& dim = loop.dims[i];
    const std::int64_t extent =
        (dim.size - 1) * std::max(std::abs(dim.in_stride), std::abs(dim.out_stride));
    if (dim.size > 1 && extent > largest) {
      largest = extent;
      found = i;
    }
  }
  return found;
}

// Loops over more than 2 GiB run in halves.
void launches(ProgramBuilder& program, ReduceLoop loop, const Reduction& reduction,
              const DeviceProfile& gpu) {
  if (!fits_32_bit(loop)) {
    Dim& dim = loop.dims[dim_to_split(loop)];
    if (dim.size < 2) return;
    const std::int64_t whole = dim.size;
    dim.size = whole / 2;
    launches(program, loop, reduction, gpu);
    dim.size = whole - whole / 2;
    launches(program, loop, reduction, gpu);
    return;
  }
  const ReduceScratch scratch = reduce_scratch(loop, reduction, gpu);
  const Scratch staging(program, scratch.staging);
  const Scratch semaphores(program, scratch.semaphores);
}

}  // namespace

ReduceLoop reduce_loop(const Reduction& reduction) {
  const TensorMeta& input = reduction.input;
  const std::int64_t element = size_of(input.dtype);
  const std::size_t n = input.sizes.size();
  std::vector<bool> gone(n, reduction.dims.empty());
  for (const std::int64_t dim : reduction.dims) {
    const std::int64_t index = dim < 0 ? dim + static_cast<std::int64_t>(n) : dim;
    if (index >= 0 && index < static_cast<std::int64_t>(n))
      gone[static_cast<std::size_t>(index)] = true;
  }
  ReduceLoop loop;
  loop.offset = input.storage_offset;
  std::int64_t out_stride = reduction.output_size;
  for (std::size_t i = n; i-- > 0;) {  // fastest first, as TensorIterator begins
    Dim dim;
    dim.size = input.sizes[i];
    dim.in_stride = (i < input.strides.size() ? input.strides[i] : 1) * element;
    dim.reduced = gone[i];
    dim.out_stride = gone[i] ? 0 : out_stride;
    if (!gone[i]) out_stride *= dim.size;
    loop.dims.push_back(dim);
  }
  sort_dims(loop.dims);
  join_dims(loop.dims);
  return loop;
}

ReduceScratch reduce_scratch(const ReduceLoop& loop, const Reduction& reduction,
                             const DeviceProfile& gpu) {
  const Shape shape = shape_of(loop);
  if (shape.outputs == 0 || shape.inputs == 0) return {};
  Launch launch = plan(loop, reduction, gpu);
  const std::int64_t values = launch.values_per_thread(shape.inputs);
  const std::int64_t blocks_per_sm = gpu.max_threads_per_sm / (launch.width * launch.height);
  const std::int64_t wanted = gpu.sm_count * blocks_per_sm;
  const std::int64_t grid = div_up(shape.outputs / launch.vector, launch.step_output);
  if (!launch.height_reduces || values < kMaxValuesPerThread || grid > wanted) return {};
  launch.blocks_per_output =
      std::max(std::min(div_up(wanted, grid), div_up(values, kMinValuesPerThread)),
               div_up(values, kMaxValuesPerThread));
  if (launch.blocks_per_output <= 1) return {};
  ReduceScratch scratch;
  scratch.staging = reduction.accumulator_size * shape.outputs * launch.blocks_per_output;
  if (!launch.width_reduces) scratch.staging *= launch.width * launch.vector;
  scratch.semaphores = 4 * grid;
  return scratch;
}

void reduce(ProgramBuilder& program, const Reduction& reduction, const DeviceProfile& gpu) {
  const ReduceLoop loop = reduce_loop(reduction);
  std::int64_t accumulator = 0;
  if (!reduction.accumulates_in_output && !fits_32_bit(loop)) {
    std::int64_t extent = reduction.output_size;
    for (const Dim& dim : loop.dims) extent = std::max(extent, dim.size * dim.out_stride);
    accumulator = extent / reduction.output_size * reduction.accumulator_size;
  }
  const Scratch buffer(program, accumulator);
  launches(program, loop, reduction, gpu);
}

}  // namespace peakline::kernels
