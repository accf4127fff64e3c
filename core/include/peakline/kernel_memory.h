// What an operator's CUDA implementation allocates: its outputs, the scratch memory of kernels and
// libraries, and in which order. Asked once per operator and shapes; the answer is a small program
// that the caller runs against its allocator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <peakline/device_profile.h>
#include <peakline/dtype.h>
#include <peakline/units.h>

namespace peakline {

// A tensor as an operator sees it. Sizes and strides count elements.
struct TensorMeta {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t storage_offset = 0;
  DType dtype = DType::kFloat32;
  bool defined = true;  // false: an optional tensor that was not given
  bool on_gpu = true;
  bool requires_grad = false;

  [[nodiscard]] std::int64_t numel() const noexcept;
  [[nodiscard]] Bytes bytes() const noexcept;  // of a dense tensor with these sizes
  [[nodiscard]] bool contiguous() const noexcept;
  // Dense in channels_last order (4 or 5 dimensions), and not also contiguous in the usual sense
  // unless its sizes make the two the same.
  [[nodiscard]] bool channels_last() const noexcept;
};

// An argument. None is std::monostate; dtypes, layouts and memory formats are ints, as in IValue.
using Argument =
    std::variant<std::monostate, TensorMeta, std::vector<TensorMeta>, std::int64_t, double, bool,
                 std::vector<std::int64_t>, std::vector<double>, std::vector<bool>, std::string>;

// One call of an operator below autograd.
struct OpCall {
  std::string_view name;            // "aten::addmm", without the overload
  std::string_view overload;        // "out", "dim_IntList", ... ; empty for the default
  std::vector<Argument> arguments;  // in the schema's order, defaults filled in
  struct Output {
    TensorMeta meta;
    bool fresh = true;  // false: a view, an argument, or undefined: nothing to allocate
  };
  std::vector<Output> outputs;  // tensors in the order of the returns, lists flattened
};

class ConvPlanner;

// Switches of the process that decide which kernels run.
struct KernelState {
  int torch_major = 2;
  int torch_minor = 11;
  bool cudnn_enabled = true;
  bool cudnn_benchmark = false;
  bool cudnn_deterministic = false;
  bool cudnn_allow_tf32 = true;
  bool matmul_allow_tf32 = false;
  bool deterministic_algorithms = false;  // torch.use_deterministic_algorithms
  // Attention backends that are switched on (torch.backends.cuda, sdpa_kernel).
  bool sdp_flash = true;
  bool sdp_efficient = true;
  bool sdp_math = true;
  bool sdp_cudnn = true;
  bool sdp_math_reduced_precision = false;  // allow_fp16_bf16_reduction_math_sdp
  // Order in which they are tried, as SdpBackend numbers; empty: torch's own order for the GPU.
  std::vector<int> sdp_priority;
  // $CUBLAS_WORKSPACE_CONFIG, $CUBLASLT_WORKSPACE_SIZE (KiB) as given; empty when not set.
  std::string cublas_workspace_config;
  std::string cublaslt_workspace_size;
  // $TORCH_CUBLASLT_UNIFIED_WORKSPACE; unset means torch's default.
  std::optional<bool> unified_workspace;
  // cuDNN itself, where it is installed; it outlives the question.
  ConvPlanner* conv_planner = nullptr;
};

// How a number was come by.
enum class Certainty : std::uint8_t {
  kExact,     // follows from torch's sources: tensors, and buffers whose size the code spells out
  kModelled,  // a rule fitted to what a closed library was seen to do
  kGuessed,   // nothing known: only the outputs are counted, or a neighbour's rule is used
};

// Memory that stays after the op, and is shared by later ones.
enum class WorkspaceScope : std::uint8_t {
  kThreadAndStream,  // one per library handle, and each thread has its own (cuBLAS, cuBLASLt)
  kDevice,           // one per device (cuDNN's dropout state)
};

struct Step {
  enum class Kind : std::uint8_t {
    kOutput,     // allocate the storage of output `index`
    kAlloc,      // allocate scratch block `index`
    kFree,       // free scratch block `index`
    kWorkspace,  // allocate `bytes` under `key` unless that is there already; stays
  };
  Kind kind = Kind::kOutput;
  int index = 0;
  Bytes bytes;  // of kOutput: Bytes{-1} when the metadata says it
  Certainty certainty = Certainty::kExact;
  std::string_view key;  // of kWorkspace; static text
  WorkspaceScope scope = WorkspaceScope::kThreadAndStream;
};

// An output whose metadata on a GPU is not what a meta tensor says.
struct OutputChange {
  int index = 0;
  TensorMeta meta;
};

// What the op does to the allocator, in order. Every fresh output has its kOutput step, every kAlloc
// its kFree.
struct AllocationProgram {
  std::vector<Step> steps;
  std::vector<OutputChange> changes;
  // Of the op as a whole: the worst of its steps, or kGuessed when no rule knows the op.
  Certainty certainty = Certainty::kExact;
};

// Thread-safe, pure. `call` is trusted to follow the op's schema: an argument of another kind than
// expected counts as not given.
AllocationProgram allocation_program(const OpCall& call, const DeviceProfile& gpu,
                                     const KernelState& state);

// torch's numbers for attention backends (SDPBackend).
enum class SdpBackend : int { kError = -1, kMath = 0, kFlash = 1, kEfficient = 2, kCudnn = 3 };

struct SdpQuery {
  TensorMeta query;  // [batch, heads, length, head size]
  TensorMeta key;
  TensorMeta value;
  TensorMeta mask;  // defined == false: none
  double dropout = 0;
  bool causal = false;
  bool enable_gqa = false;
  // Grad mode is on and one of query, key, value requires a gradient (requires_grad of the tensors
  // is used for the mask).
  bool needs_grad = true;
};

// The backend that scaled_dot_product_attention would take on this GPU.
SdpBackend sdp_choice(const SdpQuery& query, const DeviceProfile& gpu, const KernelState& state);

}  // namespace peakline
