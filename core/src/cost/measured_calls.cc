// From a line of a measured table to the op calls that it stands for.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include <peakline/cost.h>
#include <peakline/measured_calls.h>

namespace peakline {
namespace cost {
namespace {

using Json = nlohmann::json;

DType dtype_of(const Json& row) {
  const std::string name = row.value("dtype", "f32");
  if (name == "bf16") return DType::kBFloat16;
  return name == "f16" ? DType::kFloat16 : DType::kFloat32;
}

TensorMeta dense(std::vector<std::int64_t> sizes, DType dtype) {
  TensorMeta tensor;
  tensor.strides.resize(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    tensor.strides[i] = stride;
    stride *= sizes[i];
  }
  tensor.sizes = std::move(sizes);
  tensor.dtype = dtype;
  return tensor;
}

TensorMeta transposed(TensorMeta tensor) {
  const std::size_t rank = tensor.sizes.size();
  std::swap(tensor.sizes[rank - 1], tensor.sizes[rank - 2]);
  std::swap(tensor.strides[rank - 1], tensor.strides[rank - 2]);
  return tensor;
}

TensorMeta channels_last(TensorMeta tensor) {
  const std::vector<std::int64_t>& s = tensor.sizes;
  tensor.strides = {s[1] * s[2] * s[3], 1, s[1] * s[3], s[1]};
  return tensor;
}

OpCall make(std::string_view name, std::vector<Argument> arguments,
            std::vector<TensorMeta> outputs) {
  OpCall call;
  call.name = name;
  call.arguments = std::move(arguments);
  for (TensorMeta& output : outputs) call.outputs.push_back({std::move(output), true});
  return call;
}

using Calls = std::vector<OpCall>;
using Reader = Calls (*)(const Json&);

std::int64_t number(const Json& row, const char* key) { return row.value(key, std::int64_t{0}); }

TensorMeta matrix(const Json& row) {
  return dense({number(row, "rows"), number(row, "cols")}, dtype_of(row));
}

Calls mm(const Json& row) {
  const std::int64_t m = number(row, "m");
  const std::int64_t n = number(row, "n");
  const std::int64_t k = number(row, "k");
  const DType d = dtype_of(row);
  const TensorMeta a = dense({m, k}, d);
  const TensorMeta b =
      row.value("b_transposed", false) ? transposed(dense({n, k}, d)) : dense({k, n}, d);
  const TensorMeta out = dense({m, n}, d);
  if (row["op"] == "addmm") return {make("aten::addmm", {dense({n}, d), a, b}, {out})};
  if (row["op"] == "mm_bwd") {
    return {make("aten::mm", {out, transposed(b)}, {a}),
            make("aten::mm", {transposed(a), out}, {b})};
  }
  return {make("aten::mm", {a, b}, {out})};
}

Calls bmm(const Json& row) {
  const std::int64_t b = number(row, "b");
  const std::int64_t m = number(row, "m");
  const std::int64_t n = number(row, "n");
  const std::int64_t k = number(row, "k");
  const DType d = dtype_of(row);
  return {make("aten::bmm", {dense({b, m, k}, d), dense({b, k, n}, d)}, {dense({b, m, n}, d)})};
}

Calls pointwise(const Json& row) {
  const TensorMeta x = matrix(row);
  const std::string f = row.value("f", "add");
  if (f == "add") return {make("aten::add", {x, x}, {x})};
  if (f == "add_bcast") return {make("aten::add", {x, dense({x.sizes[1]}, x.dtype)}, {x})};
  if (f == "mul_scalar") return {make("aten::mul", {x}, {x})};
  if (f == "where") {
    TensorMeta mask = x;
    mask.dtype = DType::kBool;
    return {make("aten::where", {mask, x, x}, {x})};
  }
  if (f == "to_f32") {
    if (x.dtype == DType::kFloat32) return {};
    TensorMeta out = x;
    out.dtype = DType::kFloat32;
    return {make("aten::_to_copy", {x}, {out})};
  }
  return {make(f == "gelu" ? "aten::gelu" : f == "silu" ? "aten::silu" : "aten::exp", {x}, {x})};
}

Calls reduce(const Json& row) {
  const TensorMeta x = matrix(row);
  const std::string f = row.value("f", "sum_all");
  const char* name = f.starts_with("mean")   ? "aten::mean"
                     : f.starts_with("amax") ? "aten::amax"
                                             : "aten::sum";
  std::vector<std::int64_t> sizes;
  if (f.ends_with("rows")) sizes = {x.sizes[0]};
  if (f.ends_with("cols")) sizes = {x.sizes[1]};
  return {make(name, {x}, {dense(sizes, x.dtype)})};
}

Calls sdpa(const Json& row) {
  const DType d = dtype_of(row);
  const TensorMeta q =
      dense({number(row, "b"), number(row, "h"), number(row, "l"), number(row, "d")}, d);
  const bool causal = row.value("causal", false);
  const std::monostate none;
  const bool half = is_reduced_float(d);
  if (row["op"] == "sdpa") {
    return {make(half ? "aten::_scaled_dot_product_cudnn_attention"
                      : "aten::_scaled_dot_product_efficient_attention",
                 {q, q, q, none, false, 0.0, causal}, {q})};
  }
  if (half) {
    return {make("aten::_scaled_dot_product_cudnn_attention_backward",
                 {q, q, q, q, q, none, none, none, none, none, none, none, none, 0.0, causal},
                 {q, q, q})};
  }
  return {make("aten::_scaled_dot_product_efficient_attention_backward",
               {q, q, q, q, none, q, none, none, none, 0.0, none, causal}, {q, q, q})};
}

Calls conv(const Json& row) {
  const DType d = dtype_of(row);
  const std::int64_t b = number(row, "b");
  const std::int64_t c = number(row, "c");
  const std::int64_t o = number(row, "o");
  const std::int64_t s = number(row, "s");
  const std::int64_t k = number(row, "k");
  const std::int64_t stride = std::max<std::int64_t>(1, number(row, "stride"));
  const std::int64_t padding = k / 2;
  const std::int64_t side = (s + 2 * padding - k) / stride + 1;
  const bool last = row.value("channels_last", false);
  const auto laid = [&](TensorMeta t) { return last ? channels_last(std::move(t)) : t; };
  const TensorMeta x = laid(dense({b, c, s, s}, d));
  const TensorMeta w = laid(dense({o, c, k, k}, d));
  const TensorMeta y = laid(dense({b, o, side, side}, d));
  Convolution convolution;
  convolution.channels_last = last;
  convolution.stride = {stride, stride};
  convolution.padding = {padding, padding};
  convolution.dilation = {1, 1};
  OpCall call = row["op"] == "conv"
                    ? make("aten::cudnn_convolution", {x, w}, {y})
                    : make("aten::convolution_backward",
                           {y, x, w, std::monostate{}, std::vector<std::int64_t>{stride, stride},
                            std::vector<std::int64_t>{padding, padding},
                            std::vector<std::int64_t>{1, 1}, false, std::vector<std::int64_t>{0, 0},
                            std::int64_t{1}, std::vector<bool>{true, true, false}},
                           {x, w});
  call.convolution = convolution;
  return {call};
}

Calls norm(const Json& row) {
  const TensorMeta x = matrix(row);
  const std::vector<std::int64_t> shape{x.sizes[1]};
  const TensorMeta w = dense(shape, x.dtype);
  if (row["op"] == "layernorm_bwd") {
    return {make("aten::native_layer_norm_backward",
                 {x, x, shape, std::monostate{}, std::monostate{}, w, w,
                  std::vector<bool>{true, true, true}},
                 {x, w, w})};
  }
  if (row.value("f", "layer") == "rms") return {make("aten::_fused_rms_norm", {x, shape, w}, {x})};
  return {make("aten::native_layer_norm", {x, shape, w, w}, {x})};
}

Calls adamw(const Json& row) {
  const std::int64_t tensors = std::max<std::int64_t>(1, number(row, "tensors"));
  const TensorMeta one = dense({number(row, "numel") / tensors}, dtype_of(row));
  const std::vector<TensorMeta> list(static_cast<std::size_t>(tensors), one);
  const std::string f = row.value("f", "fused");
  if (f == "fused") return {make("aten::_fused_adamw_", {list, list, list, list}, {})};
  if (f != "foreach") return {};
  // What torch's foreach implementation calls, with how many lists each reads.
  return {make("aten::_foreach_mul_", {list}, {}),
          make("aten::_foreach_lerp_", {list, list}, {}),
          make("aten::_foreach_mul_", {list}, {}),
          make("aten::_foreach_addcmul_", {list, list}, {}),
          make("aten::_foreach_sqrt", {list}, std::vector<TensorMeta>(list)),
          make("aten::_foreach_div_", {list}, {}),
          make("aten::_foreach_add_", {list}, {}),
          make("aten::_foreach_addcdiv_", {list, list, list}, {})};
}

Calls cross_entropy(const Json& row) {
  const TensorMeta x = matrix(row);
  const TensorMeta target = dense({x.sizes[0]}, DType::kInt64);
  return {make("aten::_log_softmax", {x, std::int64_t{1}, false}, {x}),
          make("aten::nll_loss_forward", {x, target}, {dense({}, x.dtype)})};
}

Calls by_shape(const Json& row) {
  const TensorMeta x = matrix(row);
  const TensorMeta index = [&] {
    TensorMeta i = x;
    i.dtype = DType::kInt64;
    return i;
  }();
  const std::string op = row["op"];
  const std::int64_t last = -1;
  if (op == "gather") return {make("aten::gather", {x, last, index}, {x})};
  if (op == "softmax") return {make("aten::_softmax", {x, last, false}, {x})};
  if (op == "dropout") {
    TensorMeta mask = x;
    mask.dtype = DType::kBool;
    return {make("aten::native_dropout", {x, 0.5, true}, {x, mask})};
  }
  if (op == "cat") {
    return {make("aten::cat", {std::vector<TensorMeta>{x, x}, last},
                 {dense({x.sizes[0], 2 * x.sizes[1]}, x.dtype)})};
  }
  if (op == "copy") return {make("aten::clone", {x}, {x})};
  if (op == "transpose") {
    if (x.sizes[1] == 1 || x.sizes[0] == 1) return {};
    return {make("aten::clone", {transposed(x)}, {dense({x.sizes[1], x.sizes[0]}, x.dtype)})};
  }
  if (op == "cumsum") return {make("aten::cumsum", {x, last}, {x})};
  if (op == "sort") return {make("aten::sort", {x, last}, {x, index})};
  if (op == "gelu_bwd") return {make("aten::gelu_backward", {x, x}, {x})};
  return {
      make("aten::index_add_", {x, std::int64_t{0}, dense({x.sizes[0]}, DType::kInt64), x}, {x})};
}

Calls embedding(const Json& row) {
  const DType d = dtype_of(row);
  const std::int64_t n = number(row, "n");
  const std::int64_t dim = number(row, "dim");
  return {make("aten::embedding",
               {dense({number(row, "vocab"), dim}, d), dense({n}, DType::kInt64)},
               {dense({n, dim}, d)})};
}

Reader reader_of(const std::string& op) {
  static const std::map<std::string, Reader> kReaders{{"mm", mm},
                                                      {"addmm", mm},
                                                      {"mm_bwd", mm},
                                                      {"bmm", bmm},
                                                      {"pointwise", pointwise},
                                                      {"reduce", reduce},
                                                      {"sdpa", sdpa},
                                                      {"sdpa_bwd", sdpa},
                                                      {"conv", conv},
                                                      {"conv_bwd", conv},
                                                      {"norm", norm},
                                                      {"layernorm_bwd", norm},
                                                      {"adamw", adamw},
                                                      {"ce", cross_entropy},
                                                      {"gather", by_shape},
                                                      {"softmax", by_shape},
                                                      {"dropout", by_shape},
                                                      {"cat", by_shape},
                                                      {"copy", by_shape},
                                                      {"transpose", by_shape},
                                                      {"cumsum", by_shape},
                                                      {"sort", by_shape},
                                                      {"gelu_bwd", by_shape},
                                                      {"index_add", by_shape},
                                                      {"embed", embedding}};
  const auto found = kReaders.find(op);
  return found == kReaders.end() ? nullptr : found->second;
}

// Launches of backward reach the GPU one by one when the kernels are short: then the median is the
// host's time.
double measured_us(const Json& row, const std::string& op) {
  const double median = row.value("us", 0.0);
  const double best = row.value("best_us", median);
  // Where the queue is full, the median lies this much above the best.
  constexpr double kSpread = 0.85;
  return op.ends_with("_bwd") || op == "sort" ? std::min(median, best + kSpread) : median;
}

}  // namespace
}  // namespace cost

Result<MeasuredTable> read_measured(std::string_view jsonl) {
  MeasuredTable table;
  std::istringstream lines{std::string(jsonl)};
  std::string line;
  for (int at = 1; std::getline(lines, line); ++at) {
    if (line.empty()) continue;
    const cost::Json row = cost::Json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("op") || !row["op"].is_string()) {
      return invalid_input(fmt::format("line {} of the table is no object with an 'op'", at));
    }
    const std::string op = row["op"];
    const cost::Reader reader = cost::reader_of(op);
    if (reader == nullptr) continue;
    if (op == "adamw" && row.value("f", "") == "forloop") continue;  // the host's time
    table.calls.push_back({op, line, reader(row), cost::measured_us(row, op)});
  }
  return table;
}

}  // namespace peakline
