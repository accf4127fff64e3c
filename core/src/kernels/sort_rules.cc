// Sorting, selecting and scanning. Sources: aten/src/ATen/native/cuda/Sort.cpp, SortStable.cu,
// TensorTopK.cu, Nonzero.cu, UniqueCub.cu, ScanKernels.cpp, Randperm.cu, ../TensorCompare.cpp.
#include <algorithm>
#include <cmath>

#include "kernels/cub.h"
#include "kernels/rule_tables.h"
#include "kernels/select_top.h"

namespace peakline::kernels {
namespace {

constexpr std::int64_t kIndex = 8;         // bytes of an index
constexpr std::int64_t kSmallSort = 4096;  // sorted in place by one block
constexpr std::int64_t kLargeSegment = 1000000;
constexpr std::int64_t kFewSegments = 128;

struct Slices {
  std::int64_t count = 1;
  std::int64_t length = 1;
  bool along_last = true;  // the sorted dimension is dense
};

Slices slices_of(const TensorMeta& t, std::int64_t dim) {
  Slices s;
  if (t.sizes.empty()) return s;
  const auto n = static_cast<std::int64_t>(t.sizes.size());
  const auto index =
      static_cast<std::size_t>(std::clamp(dim < 0 ? dim + n : dim, std::int64_t{0}, n - 1));
  s.length = t.sizes[index];
  s.count = s.length > 0 ? t.numel() / s.length : 0;
  s.along_last = index < t.strides.size() && (t.strides[index] == 1 || s.length == 1);
  return s;
}

// Pairs of keys and 64-bit positions, each segment sorted by itself.
void sort_segments(ProgramBuilder& program, const Slices& s, std::int64_t key) {
  const std::int64_t n = s.count * s.length;
  const int bits = static_cast<int>(key * 8);
  if (s.count == 1 || s.length >= kLargeSegment) {
    const Scratch positions(program, s.length * kIndex);
    for (std::int64_t i = 0; i < s.count; ++i)
      program.flash(cub::radix_sort(s.length, key, kIndex, bits));
  } else if (s.count < kFewSegments) {
    // One sort of everything, then one by segment number.
    const Scratch both(program, n * 2 * kIndex);
    const Scratch sorted(program, n * 2 * kIndex);
    program.flash(cub::radix_sort(n, key, 2 * kIndex, bits));
    program.flash(cub::radix_sort(n, kIndex, 2 * kIndex, 8), Certainty::kModelled);
  } else {
    const Scratch positions(program, n * kIndex);
    program.flash(cub::aligned(n * key) + cub::aligned(n * kIndex) + cub::kAlign - 1,
                  Certainty::kModelled);
  }
}

void sort_values(ProgramBuilder& program, const TensorMeta& input, std::int64_t dim) {
  const Slices s = slices_of(input, dim);
  if (input.numel() == 0) return;
  if (s.length <= kSmallSort) {
    program.flash(s.length * kIndex);  // 0, 1, 2, ... to be copied to every slice
    return;
  }
  const std::int64_t key = size_of(input.dtype);
  const Scratch moved(program, s.along_last ? 0 : input.bytes().raw());
  const Scratch moved_values(program, s.along_last ? 0 : input.bytes().raw());
  const Scratch moved_indices(program, s.along_last ? 0 : input.numel() * kIndex);
  sort_segments(program, s, key);
}

void sort(RuleContext& op) {
  op.program.outputs();
  const bool stable = op.call.overload.starts_with("stable");
  sort_values(op.program, op.args.tensor(0), op.args.integer(stable ? 2 : 1, -1));
}

void argsort(RuleContext& op) {
  const TensorMeta& input = op.args.tensor(0);
  const bool stable = op.call.overload.starts_with("stable");
  const Scratch values(op.program, input.bytes().raw());
  op.program.outputs();
  sort_values(op.program, input, op.args.integer(stable ? 2 : 1, -1));
}

// Whether several blocks share a slice.
bool several_blocks(const Slices& s) {
  constexpr std::int64_t kLimits[][2] = {{20, 20000}, {40, 10000}, {80, 8000},      {200, 5000},
                                         {800, 3000}, {4000, 800}, {INT64_MAX, 400}};
  for (const auto& [most, length] : kLimits) {
    if (s.count <= most) return s.length >= length;
  }
  return false;
}

void topk(RuleContext& op) {
  op.program.outputs();
  const TensorMeta& input = op.args.tensor(0);
  if (input.numel() == 0) return;
  const Slices s = slices_of(input, op.args.integer(2, -1));
  select_top(op.program, s.count, s.length, size_of(input.dtype), op.gpu);
  const std::int64_t k = op.args.integer(1);
  if (k <= kSmallSort) return;  // sorted in place
  const Slices result = slices_of(op.args.out(0), op.args.integer(2, -1));
  const Scratch order(op.program, op.args.out(0).numel() * kIndex);
  const Scratch sorted(op.program, op.args.out(0).bytes().raw());
  sort_segments(op.program, result, size_of(input.dtype));
  op.program.flash(op.args.out(0).numel() * kIndex);
}

// Counts first, so that the result has the right size.
void count_nonzeros(RuleContext& op, std::int64_t n) {
  op.program.flash(cub::reduce(n, 4, op.gpu), Certainty::kModelled);
}

void nonzero(RuleContext& op) {
  const std::int64_t n = op.args.tensor(0).numel();
  const Scratch count(op.program, 4);
  count_nonzeros(op, n);
  op.program.outputs();
  op.program.flash(cub::select(n), Certainty::kModelled);
}

struct Unique {
  std::int64_t n;
  std::int64_t key;
  bool inverse;
  bool counted;
};

// `make_inverse`, `make_values` and `make_counts` allocate the results when it is their turn.
template <class Inverse, class Values, class Counts>
void find_unique(ProgramBuilder& program, const Unique& u, Inverse make_inverse, Values make_values,
                 Counts make_counts) {
  const Scratch sorted(program, u.n * u.key);
  const Scratch order(program, u.inverse ? u.n * kIndex : 0);
  {
    const Scratch range(program, u.inverse ? u.n * kIndex : 0);
    program.flash(cub::radix_sort(u.n, u.key, u.inverse ? kIndex : 0, static_cast<int>(u.key * 8)),
                  Certainty::kModelled);
  }
  if (u.inverse) {
    make_inverse();
    const Scratch positions(program, u.n * kIndex);
    program.flash(cub::scan(u.n, kIndex), Certainty::kModelled);
  }
  make_values();
  const Scratch length(program, kIndex);
  if (u.counted) make_counts();
  program.flash(u.counted ? cub::run_length_encode(u.n) : cub::select(u.n), Certainty::kModelled);
}

// The result has room for as many elements as the input until torch shrinks its shape.
void unique(RuleContext& op) {
  const TensorMeta& input = op.args.tensor(0);
  const Unique u{input.numel(), size_of(input.dtype), op.args.flag(2), op.args.flag(3)};
  find_unique(
      op.program, u, [&] { op.program.output(1); },
      [&] { op.program.output_of(0, u.n * u.key, Certainty::kExact); },
      [&] { op.program.output_of(2, u.n * kIndex, Certainty::kExact); });
}

// Many elements to look for: both sides are sorted together, and neighbours compared. What is
// unique is taken to be everything.
void isin_sorted(RuleContext& op, std::int64_t n, std::int64_t tests, std::int64_t key) {
  ProgramBuilder& program = op.program;
  const bool unique_already = op.args.flag(2);
  int inverse = -1;
  int elements = -1;
  int others = -1;
  if (!unique_already) {
    find_unique(
        program, {n, key, true, false}, [&] { inverse = program.alloc(n * kIndex); },
        [&] { elements = program.alloc(n * key); }, [] {});
    find_unique(
        program, {tests, key, false, false}, [] {}, [&] { others = program.alloc(tests * key); },
        [] {});
  }
  TensorMeta all = op.args.tensor(0);
  all.sizes = {n + tests};
  all.strides = {1};
  const Scratch joined(program, all.bytes().raw());
  const Scratch sorted(program, all.bytes().raw());
  const Scratch order(program, all.numel() * kIndex);
  sort_values(program, all, 0);
  const Scratch repeated(program, all.numel());
  program.flash(all.numel() - 1);
  const Scratch found(program, all.numel());
  if (!unique_already) program.flash(n);
  for (const int block : {others, elements, inverse}) program.free(block);
}

// Few elements to look for: everything is compared with each of them (TensorCompare.cpp).
void isin(RuleContext& op) {
  op.program.outputs();
  const std::int64_t n = op.args.tensor(0).numel();
  const std::int64_t tests = op.args.tensor(1).numel();
  if (op.call.overload != "Tensor_Tensor" || n == 0 || tests == 0) return;
  if (static_cast<double>(tests) < 10 * std::pow(static_cast<double>(n), 0.145)) {
    const Scratch equal(op.program, n * tests);
    op.program.flash(n);
    return;
  }
  isin_sorted(op, n, tests, size_of(op.args.tensor(0).dtype));
}

// Positions of the chosen elements, then the elements.
void masked_select(RuleContext& op) {
  const std::int64_t n = op.args.tensor(1).numel();
  const int count = op.program.alloc(4);
  count_nonzeros(op, n);
  const Scratch positions(op.program, op.args.out(0).numel() * kIndex);
  op.program.flash(cub::select(n), Certainty::kModelled);
  op.program.free(count);
  op.program.outputs();
}

// Only scans along the whole tensor use CUB; others need no memory.
void scan(RuleContext& op) {
  op.program.outputs();
  const TensorMeta& input = op.args.tensor(0);
  const Slices s = slices_of(input, op.args.integer(1, 0));
  if (s.count == 1 && s.length > 1) {
    op.program.flash(cub::scan(s.length, size_of(op.args.out(0).dtype)), Certainty::kModelled);
  }
}

// Sorts a copy, then picks the middle; not-a-number is looked for first.
void median(RuleContext& op) {
  const TensorMeta& input = op.args.tensor(0);
  if (!op.call.overload.empty() && op.call.overload.starts_with("dim")) {
    op.program.outputs();
    return;
  }
  TensorMeta flat = input;
  flat.sizes = {input.numel()};
  flat.strides = {1};
  const Scratch values(op.program, input.bytes().raw());
  {
    const Scratch indices(op.program, input.numel() * kIndex);
    sort_values(op.program, flat, 0);
  }
  const Scratch nan(op.program, 1);
  op.program.outputs();
}

// Random keys are sorted; they are long enough that two are hardly ever the same.
void randperm(RuleContext& op) {
  const std::int64_t n = op.args.integer(0);
  op.program.outputs();
  if (n < 2) return;
  const double count = static_cast<double>(n);
  const double wanted = count - (6 * count * count + 1) / (std::log(0.9) * 12);
  const int bits = std::min(64, static_cast<int>(std::ceil(std::log2(wanted))));
  const std::int64_t key = bits <= 32 ? 4 : 8;
  const std::int64_t element = size_of(op.args.out(0).dtype);
  op.program.flash(kIndex);
  const Scratch range(op.program, n * element);
  const Scratch keys(op.program, n * key);
  const Scratch sorted(op.program, n * key);
  op.program.flash(cub::radix_sort(n, key, element, bits), Certainty::kModelled);
}

constexpr NamedRule kRules[] = {
    {"aten::sort", sort},          {"aten::argsort", argsort},
    {"aten::topk", topk},          {"aten::nonzero", nonzero},
    {"aten::unique2", unique},     {"aten::_unique2", unique},
    {"aten::_unique", unique},     {"aten::masked_select", masked_select},
    {"aten::cumsum", scan},        {"aten::cumsum_", scan},
    {"aten::cumprod", scan},       {"aten::logcumsumexp", scan},
    {"aten::_logcumsumexp", scan}, {"aten::median", median},
    {"aten::nanmedian", median},   {"aten::randperm", randperm},
    {"aten::isin", isin},
};

}  // namespace

void select_top(ProgramBuilder& program, std::int64_t slices, std::int64_t length,
                std::int64_t element, const DeviceProfile& gpu) {
  const Slices s{slices, length, true};
  if (!several_blocks(s)) return;
  constexpr std::int64_t kThreads = 256;
  const std::int64_t blocks_per_sm = gpu.registers_per_sm / (40 * kThreads);
  const std::int64_t per_thread = std::clamp<std::int64_t>(
      cub::div_up(s.count * s.length, gpu.sm_count * blocks_per_sm * kThreads), 4, 64);
  const std::int64_t blocks = s.count * cub::div_up(s.length, per_thread * kThreads);
  const Scratch kth(program, s.count * element);
  const Scratch semaphores(program, s.count * 8);
  const Scratch wanted(program, s.count * 8);
  const Scratch counts(program, blocks * 256 * 2);
  const Scratch digit_sums(program, s.count * 256 * 4);
  const Scratch within(program, blocks * 4);
  const Scratch equal(program, blocks * 4);
  program.flash(cub::scan(blocks, 8), Certainty::kModelled);
  program.flash(cub::scan(blocks, 8), Certainty::kModelled);
}

std::span<const NamedRule> sort_rules() { return kRules; }

}  // namespace peakline::kernels
