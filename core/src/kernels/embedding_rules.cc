// Gradients of embeddings. Sources: aten/src/ATen/native/cuda/Embedding.cu,
// EmbeddingBackwardKernel.cu, EmbeddingBag.cu.
#include <algorithm>

#include "kernels/cub.h"
#include "kernels/rule_tables.h"

namespace peakline::kernels {
namespace {

constexpr std::int64_t kIndex = 8;
constexpr std::int64_t kFewIndices = 3072;   // handled by one kernel without sorting
constexpr std::int64_t kRowsPerThread = 10;  // rows that one partial sum takes
constexpr std::int64_t kManyParts = 4;       // per segment
constexpr std::int64_t kWarp = 32;

std::int64_t row_bytes(std::int64_t width, DType dtype) {
  return cub::div_up(width, kWarp) * kWarp * size_of(accumulate_type(dtype));
}

// Rows of the gradient are summed by segments of equal indices, in parts, in float.
void sum_segments(ProgramBuilder& program, std::int64_t n, std::int64_t rows, std::int64_t width,
                  DType dtype) {
  const std::int64_t segments = std::min(n, rows);
  const std::int64_t parts = n / kRowsPerThread + segments;
  const Scratch segment_offsets(program, n * kIndex);
  const Scratch segment_count(program, kIndex);
  {
    const Scratch flags(program, n * kIndex);
    program.flash(cub::scan(n, kIndex), Certainty::kModelled);
  }
  const Scratch parts_per_segment(program, segments * kIndex);
  const Scratch part_offsets(program, segments * kIndex);
  program.flash(cub::scan(segments, kIndex), Certainty::kModelled);
  const Scratch part_count(program, kIndex);
  const Scratch part_starts(program, parts * kIndex);
  if (parts >= kManyParts * segments) {  // few rows, many tokens: parts add to their segment
    const Scratch part_segments(program, parts * kIndex);
    const bool wide = accumulate_type(dtype) != dtype;
    const Scratch segment_sums(program, wide ? segments * row_bytes(width, dtype) : 0,
                               Certainty::kModelled);
    return;
  }
  const Scratch partial_sums(program, parts * row_bytes(width, dtype));
}

// Indices are sorted, each with its place; then come the result and the sums.
void sort_and_sum(RuleContext& op, const TensorMeta& indices, std::int64_t rows,
                  bool by_frequency) {
  const TensorMeta& gradient = op.args.tensor(0);
  const std::int64_t n = indices.numel();
  const std::int64_t index = size_of(indices.dtype);
  const std::int64_t width = gradient.sizes.empty() ? 1 : gradient.sizes.back();
  const Scratch sorted(op.program, n * index);
  const Scratch order(op.program, n * index);
  {
    const Scratch range(op.program, n * index);
    op.program.flash(cub::radix_sort(n, index, index, static_cast<int>(index * 8)),
                     Certainty::kModelled);
  }
  const Scratch counts(op.program, by_frequency ? n * index : 0);
  op.program.outputs();
  sum_segments(op.program, n, rows, width, gradient.dtype);
}

void embedding_backward(RuleContext& op) {
  const TensorMeta& gradient = op.args.tensor(0);
  const std::int64_t n = op.args.tensor(1).numel();
  const std::int64_t rows = op.args.integer(2);
  const bool by_frequency = op.args.flag(4);
  const Scratch dense(op.program, gradient.contiguous() ? 0 : gradient.bytes().raw());
  const TensorMeta& indices = op.args.tensor(1);
  const std::int64_t index = size_of(indices.dtype);
  const Scratch dense_indices(op.program, indices.contiguous() ? 0 : n * index);
  if ((n <= kFewIndices && !by_frequency) || n == 0) return op.program.outputs();
  sort_and_sum(op, indices, rows, by_frequency);
}

// Bags of embeddings, with the place of the number of rows among the arguments; whether gradients
// are scaled by frequency and the mode follow it.
void bag_backward(RuleContext& op, std::size_t rows) {
  constexpr std::int64_t kModeMax = 2;  // added where the largest came from, without sorting
  const TensorMeta& indices = op.args.tensor(1);
  const bool largest = op.args.integer(rows + 2) == kModeMax;
  if (indices.numel() == 0 || largest) return op.program.outputs();
  sort_and_sum(op, indices, op.args.integer(rows), op.args.flag(rows + 1));
}

// _embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, rows, ...)
void dense_bag_backward(RuleContext& op) { bag_backward(op, 5); }
// _embedding_bag_backward(grad, indices, offsets, offset2bag, bag_size, maximum_indices, rows,
// by_frequency, mode, sparse, ...)
void any_bag_backward(RuleContext& op) {
  if (!op.args.flag(9)) bag_backward(op, 6);
}

constexpr NamedRule kRules[] = {
    {"aten::embedding_dense_backward", embedding_backward},
    {"aten::_embedding_bag_dense_backward", dense_bag_backward},
    {"aten::_embedding_bag_backward", any_bag_backward},
};

}  // namespace

std::span<const NamedRule> embedding_rules() { return kRules; }

}  // namespace peakline::kernels
