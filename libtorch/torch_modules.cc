// torch's own modules: each call is noted, and goes on to torch (see original.h).
//
// Not here are those whose forward is compiled into the program (BatchNorm, InstanceNorm, Sequential),
// which peakline/torch/module_call.h sees, and containers, which are not called.
#include <dlfcn.h>
#include <torch/nn/modules.h>

#include <optional>
#include <tuple>

#include "libtorch/original.h"
#include "libtorch/seen.h"
#include "peakline/torch/module_call.h"

namespace torch::nn {

using peakline::ModuleCall;
using peakline::original;
using States = std::tuple<Tensor, Tensor>;
using Lengths = std::optional<at::IntArrayRef>;
using Sizes = std::optional<std::vector<int64_t>>;

// PARAMETERS declares what forward takes, ARGUMENTS passes it on, INPUT is the first of it.
#define PEAKLINE_SEEN(Result, Name, PARAMETERS, ARGUMENTS, INPUT)          \
  Result Name::forward PARAMETERS {                                        \
    static const auto kForward =                                           \
        original(static_cast<Result(Name::*) PARAMETERS>(&Name::forward)); \
    const ModuleCall call(*this, INPUT);                                   \
    return (this->*kForward) ARGUMENTS;                                    \
  }

// NOLINTBEGIN(performance-unnecessary-value-param): the parameters are torch's
#define PEAKLINE_SEEN_1(Name) PEAKLINE_SEEN(Tensor, Name, (const Tensor& a), (a), a)
PEAKLINE_SEEN_1(AdaptiveAvgPool1dImpl)
PEAKLINE_SEEN_1(AdaptiveAvgPool2dImpl)
PEAKLINE_SEEN_1(AdaptiveAvgPool3dImpl)
PEAKLINE_SEEN_1(AdaptiveMaxPool1dImpl)
PEAKLINE_SEEN_1(AdaptiveMaxPool2dImpl)
PEAKLINE_SEEN_1(AdaptiveMaxPool3dImpl)
PEAKLINE_SEEN_1(AlphaDropoutImpl)
PEAKLINE_SEEN_1(AvgPool1dImpl)
PEAKLINE_SEEN_1(AvgPool2dImpl)
PEAKLINE_SEEN_1(AvgPool3dImpl)
PEAKLINE_SEEN_1(Conv1dImpl)
PEAKLINE_SEEN_1(Conv2dImpl)
PEAKLINE_SEEN_1(Conv3dImpl)
PEAKLINE_SEEN_1(CrossMapLRN2dImpl)
PEAKLINE_SEEN_1(EmbeddingImpl)
PEAKLINE_SEEN_1(FeatureAlphaDropoutImpl)
PEAKLINE_SEEN_1(FlattenImpl)
PEAKLINE_SEEN_1(FoldImpl)
PEAKLINE_SEEN_1(FractionalMaxPool2dImpl)
PEAKLINE_SEEN_1(FractionalMaxPool3dImpl)
PEAKLINE_SEEN_1(GELUImpl)
PEAKLINE_SEEN_1(GLUImpl)
PEAKLINE_SEEN_1(GroupNormImpl)
PEAKLINE_SEEN_1(HardshrinkImpl)
PEAKLINE_SEEN_1(IdentityImpl)
PEAKLINE_SEEN_1(LPPool1dImpl)
PEAKLINE_SEEN_1(LPPool2dImpl)
PEAKLINE_SEEN_1(LPPool3dImpl)
PEAKLINE_SEEN_1(LayerNormImpl)
PEAKLINE_SEEN_1(LinearImpl)
PEAKLINE_SEEN_1(LocalResponseNormImpl)
PEAKLINE_SEEN_1(LogSigmoidImpl)
PEAKLINE_SEEN_1(LogSoftmaxImpl)
PEAKLINE_SEEN_1(MaxPool1dImpl)
PEAKLINE_SEEN_1(MaxPool2dImpl)
PEAKLINE_SEEN_1(MaxPool3dImpl)
PEAKLINE_SEEN_1(MishImpl)
PEAKLINE_SEEN_1(PReLUImpl)
PEAKLINE_SEEN_1(PixelShuffleImpl)
PEAKLINE_SEEN_1(PixelUnshuffleImpl)
PEAKLINE_SEEN_1(SiLUImpl)
PEAKLINE_SEEN_1(SigmoidImpl)
PEAKLINE_SEEN_1(SoftmaxImpl)
PEAKLINE_SEEN_1(Softmax2dImpl)
PEAKLINE_SEEN_1(SoftminImpl)
PEAKLINE_SEEN_1(SoftplusImpl)
PEAKLINE_SEEN_1(SoftshrinkImpl)
PEAKLINE_SEEN_1(SoftsignImpl)
PEAKLINE_SEEN_1(TanhImpl)
PEAKLINE_SEEN_1(TanhshrinkImpl)
PEAKLINE_SEEN_1(UnflattenImpl)
PEAKLINE_SEEN_1(UnfoldImpl)
PEAKLINE_SEEN_1(UpsampleImpl)

#define PEAKLINE_SEEN_VALUE(Name) PEAKLINE_SEEN(Tensor, Name, (Tensor a), (std::move(a)), a)
PEAKLINE_SEEN_VALUE(CELUImpl)
PEAKLINE_SEEN_VALUE(DropoutImpl)
PEAKLINE_SEEN_VALUE(Dropout2dImpl)
PEAKLINE_SEEN_VALUE(Dropout3dImpl)
PEAKLINE_SEEN_VALUE(ELUImpl)
PEAKLINE_SEEN_VALUE(FunctionalImpl)
PEAKLINE_SEEN_VALUE(HardtanhImpl)
PEAKLINE_SEEN_VALUE(LeakyReLUImpl)
PEAKLINE_SEEN_VALUE(RReLUImpl)
PEAKLINE_SEEN_VALUE(ReLUImpl)
PEAKLINE_SEEN_VALUE(ReLU6Impl)
PEAKLINE_SEEN_VALUE(SELUImpl)
PEAKLINE_SEEN_VALUE(ThresholdImpl)

#define PEAKLINE_SEEN_2(Name) \
  PEAKLINE_SEEN(Tensor, Name, (const Tensor& a, const Tensor& b), (a, b), a)
PEAKLINE_SEEN_2(BCELossImpl)
PEAKLINE_SEEN_2(BCEWithLogitsLossImpl)
PEAKLINE_SEEN_2(BilinearImpl)
PEAKLINE_SEEN_2(CosineSimilarityImpl)
PEAKLINE_SEEN_2(CrossEntropyLossImpl)
PEAKLINE_SEEN_2(GRUCellImpl)
PEAKLINE_SEEN_2(HingeEmbeddingLossImpl)
PEAKLINE_SEEN_2(HuberLossImpl)
PEAKLINE_SEEN_2(KLDivLossImpl)
PEAKLINE_SEEN_2(L1LossImpl)
PEAKLINE_SEEN_2(MSELossImpl)
PEAKLINE_SEEN_2(MultiLabelMarginLossImpl)
PEAKLINE_SEEN_2(MultiLabelSoftMarginLossImpl)
PEAKLINE_SEEN_2(MultiMarginLossImpl)
PEAKLINE_SEEN_2(NLLLossImpl)
PEAKLINE_SEEN_2(PairwiseDistanceImpl)
PEAKLINE_SEEN_2(PoissonNLLLossImpl)
PEAKLINE_SEEN_2(RNNCellImpl)
PEAKLINE_SEEN_2(SmoothL1LossImpl)
PEAKLINE_SEEN_2(SoftMarginLossImpl)

#define PEAKLINE_SEEN_3(Name) \
  PEAKLINE_SEEN(Tensor, Name, (const Tensor& a, const Tensor& b, const Tensor& c), (a, b, c), a)
PEAKLINE_SEEN_3(CosineEmbeddingLossImpl)
PEAKLINE_SEEN_3(EmbeddingBagImpl)
PEAKLINE_SEEN_3(MarginRankingLossImpl)
PEAKLINE_SEEN_3(TransformerEncoderImpl)
PEAKLINE_SEEN_3(TransformerEncoderLayerImpl)
PEAKLINE_SEEN_3(TripletMarginLossImpl)
PEAKLINE_SEEN_3(TripletMarginWithDistanceLossImpl)

#define PEAKLINE_SEEN_TRANSPOSED(Name) \
  PEAKLINE_SEEN(Tensor, Name, (const Tensor& a, const Lengths& b), (a, b), a)
PEAKLINE_SEEN_TRANSPOSED(ConvTranspose1dImpl)
PEAKLINE_SEEN_TRANSPOSED(ConvTranspose2dImpl)
PEAKLINE_SEEN_TRANSPOSED(ConvTranspose3dImpl)

#define PEAKLINE_SEEN_UNPOOL(Name) \
  PEAKLINE_SEEN(Tensor, Name, (const Tensor& a, const Tensor& b, const Sizes& c), (a, b, c), a)
PEAKLINE_SEEN_UNPOOL(MaxUnpool1dImpl)
PEAKLINE_SEEN_UNPOOL(MaxUnpool2dImpl)
PEAKLINE_SEEN_UNPOOL(MaxUnpool3dImpl)

using Hidden = std::tuple<Tensor, Tensor>;
using LstmResult = std::tuple<Tensor, std::tuple<Tensor, Tensor>>;
PEAKLINE_SEEN(Hidden, GRUImpl, (const Tensor& a, Tensor b), (a, std::move(b)), a)
PEAKLINE_SEEN(Hidden, RNNImpl, (const Tensor& a, Tensor b), (a, std::move(b)), a)
PEAKLINE_SEEN(LstmResult, LSTMImpl, (const Tensor& a, std::optional<States> b), (a, std::move(b)),
              a)
PEAKLINE_SEEN(Hidden, LSTMCellImpl, (const Tensor& a, std::optional<States> b), (a, std::move(b)),
              a)
PEAKLINE_SEEN(ASMoutput, AdaptiveLogSoftmaxWithLossImpl, (const Tensor& a, const Tensor& b), (a, b),
              a)
PEAKLINE_SEEN(Tensor, CTCLossImpl,
              (const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d), (a, b, c, d), a)
PEAKLINE_SEEN(Hidden, MultiheadAttentionImpl,
              (const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d, bool e,
               const Tensor& f, bool g),
              (a, b, c, d, e, f, g), a)
PEAKLINE_SEEN(Tensor, TransformerDecoderImpl,
              (const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d, const Tensor& e,
               const Tensor& f),
              (a, b, c, d, e, f), a)
PEAKLINE_SEEN(Tensor, TransformerDecoderLayerImpl,
              (Tensor a, const Tensor& b, const Tensor& c, const Tensor& d, const Tensor& e,
               const Tensor& f),
              (std::move(a), b, c, d, e, f), a)
PEAKLINE_SEEN(Tensor, TransformerImpl,
              (const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d, const Tensor& e,
               const Tensor& f, const Tensor& g, const Tensor& h),
              (a, b, c, d, e, f, g, h), a)
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace torch::nn

namespace peakline {

bool sees_torch_modules() noexcept {
  Dl_info found{};
  Dl_info ours{};
  const void* first = ::dlsym(RTLD_DEFAULT, "_ZN5torch2nn10LinearImpl7forwardERKN2at6TensorE");
  return first != nullptr && ::dladdr(first, &found) != 0 &&
         ::dladdr(reinterpret_cast<const void*>(&sees_torch_modules), &ours) != 0 &&
         found.dli_fbase == ours.dli_fbase;
}

}  // namespace peakline
