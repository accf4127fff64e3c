// Reading and writing through index tensors. Sources: aten/src/ATen/native/cuda/Indexing.cu,
// aten/src/ATen/native/TensorAdvancedIndexing.cpp, IndexingUtils.h.
#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/cub.h"
#include "kernels/rule_tables.h"

namespace peakline::kernels {
namespace {

constexpr std::int64_t kIndex = 8;

std::int64_t broadcast_count(const std::vector<TensorMeta>& indices) {
  std::int64_t count = 1;
  for (const TensorMeta& index : indices) {
    if (index.defined) count = std::max(count, index.numel());
  }
  return count;
}

// Positions in the flattened tensor: wrapped, scaled, and added up over the indexed dimensions.
// Leaves the block with them alive.
int linear_positions(ProgramBuilder& program, const std::vector<TensorMeta>& indices,
                     std::int64_t n) {
  int sum = -1;
  for (const TensorMeta& index : indices) {
    if (!index.defined) continue;
    const int wrapped = program.alloc(n * kIndex);
    const int scaled = program.alloc(n * kIndex);
    program.free(wrapped);
    if (sum < 0) {
      sum = scaled;
      continue;
    }
    program.free(scaled);  // added in place
  }
  return sum;
}

// A mask among the indices stands for the positions of its true elements; null: no mask.
const TensorMeta* mask_of(const std::vector<TensorMeta>& indices) {
  for (const TensorMeta& index : indices) {
    if (index.defined && index.dtype == DType::kBool) return &index;
  }
  return nullptr;
}

// The positions that a mask stands for, as nonzero finds them. Leaves the block with them alive; -1
// without a mask. `rows`: how many are true.
int mask_positions(RuleContext& op, const std::vector<TensorMeta>& indices, std::int64_t rows) {
  const TensorMeta* mask = mask_of(indices);
  if (mask == nullptr) return -1;
  const Scratch count(op.program, 4);
  op.program.flash(cub::reduce(mask->numel(), 4, op.gpu), Certainty::kModelled);
  const auto dimensions = static_cast<std::int64_t>(mask->sizes.size());
  const int positions = op.program.alloc(rows * dimensions * kIndex);
  op.program.flash(cub::select(mask->numel()), Certainty::kModelled);
  return positions;
}

// The shape that all of them broadcast to.
std::vector<std::int64_t> broadcast_shape(const std::vector<TensorMeta>& tensors) {
  std::vector<std::int64_t> shape;
  for (const TensorMeta& t : tensors) {
    if (t.sizes.size() > shape.size())
      shape.insert(shape.begin(), t.sizes.size() - shape.size(), 1);
    for (std::size_t i = 1; i <= t.sizes.size(); ++i) {
      std::int64_t& size = shape[shape.size() - i];
      if (size == 1) size = t.sizes[t.sizes.size() - i];
    }
  }
  return shape;
}

// `t` as a view of this shape: strides of 0 where it is repeated.
TensorMeta expanded(TensorMeta t, const std::vector<std::int64_t>& shape) {
  while (t.sizes.size() < shape.size()) {
    t.strides.insert(t.strides.begin(), t.sizes.empty() ? 1 : t.sizes[0] * t.strides[0]);
    t.sizes.insert(t.sizes.begin(), 1);
  }
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (t.sizes[i] != shape[i]) t.strides[i] = 0;
  }
  t.sizes = shape;
  return t;
}

// Index tensors as CUDA's kernel reads them: on the GPU, broadcast, of 64 bits, and all with the same
// strides. Allocates what has to be copied for that; the copies live as long as this.
class IndexCopies {
 public:
  IndexCopies(ProgramBuilder& program, const std::vector<TensorMeta>& given) : program_(program) {
    std::vector<TensorMeta> indices;
    for (const TensorMeta& index : given) {
      if (!index.defined || index.dtype == DType::kBool) continue;  // a mask's positions are dense
      indices.push_back(index.on_gpu ? index : copy(index));
    }
    const std::vector<std::int64_t> shape = broadcast_shape(indices);
    for (TensorMeta& index : indices) {
      index = expanded(std::move(index), shape);
      if (index.dtype == DType::kInt32) index = copy(index);
    }
    const auto lie_alike = [&](const TensorMeta& t) { return t.strides == indices[0].strides; };
    if (std::ranges::all_of(indices, lie_alike)) return;
    for (const TensorMeta& index : indices) {
      if (!index.contiguous()) copy(index);
    }
  }
  IndexCopies(const IndexCopies&) = delete;
  IndexCopies& operator=(const IndexCopies&) = delete;
  ~IndexCopies() {
    for (const int block : blocks_) program_.free(block);
  }

 private:
  // A dense copy of `index` with 64 bits for each position, on the GPU.
  TensorMeta copy(const TensorMeta& index) {
    TensorMeta dense = index;
    dense.on_gpu = true;
    if (dense.dtype == DType::kInt32) dense.dtype = DType::kInt64;
    std::int64_t stride = 1;
    for (std::size_t i = dense.sizes.size(); i-- > 0;) {
      dense.strides[i] = stride;
      stride *= std::max<std::int64_t>(dense.sizes[i], 1);
    }
    blocks_.push_back(program_.alloc(dense.numel() * kIndex));
    return dense;
  }

  ProgramBuilder& program_;
  std::vector<int> blocks_;
};

// x[indices]
void index(RuleContext& op) {
  const std::int64_t rows =
      op.args.outs() > 0 && !op.args.out(0).sizes.empty() ? op.args.out(0).sizes[0] : 0;
  const int positions = mask_positions(op, op.args.tensors(1), rows);
  const IndexCopies copies(op.program, op.args.tensors(1));
  op.program.outputs();
  op.program.free(positions);
}

// Accumulating writes are ordered by a sort, so that equal positions meet.
void accumulate(RuleContext& op, std::size_t indices_at, std::size_t values_at) {
  const TensorMeta& self = op.args.tensor(0);
  const std::vector<TensorMeta>& indices = op.args.tensors(indices_at);
  const TensorMeta& values = op.args.tensor(values_at);
  const bool masked = mask_of(indices) != nullptr && !values.sizes.empty();
  const std::int64_t n = masked ? values.sizes[0] : broadcast_count(indices);
  if (n == 0 || self.numel() == 0) return;
  std::int64_t rows = 1;
  for (std::size_t i = 0; i < indices.size() && i < self.sizes.size(); ++i) {
    if (indices[i].defined) rows *= self.sizes[i];
  }
  const int chosen = mask_positions(op, indices, n);
  const int positions = linear_positions(op.program, indices, n);
  const Scratch dense(op.program, values.contiguous() ? 0 : values.bytes().raw());
  const Scratch sorted(op.program, n * kIndex);
  const Scratch order(op.program, n * kIndex);
  const Scratch range(op.program, n * kIndex);
  const int bits =
      static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(rows, 1))));
  op.program.flash(cub::radix_sort(n, kIndex, kIndex, bits), Certainty::kModelled);
  op.program.free(positions);
  op.program.free(chosen);
}

void index_put(RuleContext& op) {
  op.program.outputs();
  if (op.args.flag(3) || op.state.switches.deterministic_algorithms) return accumulate(op, 1, 2);
  const IndexCopies copies(op.program, op.args.tensors(1));
}

// Rolls one dimension after the other; every turn but the last leaves a copy behind.
void roll(RuleContext& op) {
  const std::size_t turns = op.args.integers(2).size();
  int before = -1;
  for (std::size_t i = 1; i < turns; ++i) {
    const int turned = op.program.alloc(op.args.tensor(0).bytes().raw());
    op.program.free(before);
    before = turned;
  }
  op.program.outputs();
  op.program.free(before);
}

// The result begins as one like the input and is resized: a larger one is allocated beside it, a
// smaller one keeps the memory (Im2Col.cu, Col2Im.cu).
void im2col(RuleContext& op) {
  const Scratch first(op.program, op.args.tensor(0).bytes().raw());
  op.program.outputs();
}

void col2im(RuleContext& op) {
  const std::int64_t columns = op.args.tensor(0).bytes().raw();
  if (op.args.outs() == 0) return;
  op.program.output_of(0, std::max(columns, op.args.out(0).bytes().raw()), Certainty::kExact);
}

constexpr NamedRule kRules[] = {
    {"aten::im2col", im2col},
    {"aten::col2im", col2im},
    {"aten::roll", roll},
    {"aten::index", index},
    {"aten::_unsafe_index", index},
    {"aten::index_put", index_put},
    {"aten::index_put_", index_put},
    {"aten::_unsafe_index_put", index_put},
    {"aten::_index_put_impl_", index_put},
};

}  // namespace

std::span<const NamedRule> indexing_rules() { return kRules; }

}  // namespace peakline::kernels
