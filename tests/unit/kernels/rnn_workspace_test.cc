// Expected sizes are what cuDNN 9.19 asked for on a real H200.
#include "kernels/rnn_workspace.h"

#include <gtest/gtest.h>

#include <cmath>

namespace peakline::kernels {
namespace {

constexpr RnnMode kTanh = RnnMode::kTanh;
constexpr RnnMode kGru = RnnMode::kGru;
constexpr RnnMode kLstm = RnnMode::kLstm;

struct Measured {
  RnnMode mode;
  DType dtype;
  std::int64_t batch;
  std::int64_t length;
  std::int64_t input;
  std::int64_t hidden;
  std::int64_t layers;
  std::int64_t directions;
  std::int64_t forward;
  std::int64_t backward;
};

constexpr Measured kMeasured[] = {
    {kTanh, DType::kFloat32, 20, 20, 256, 100, 1, 1, 11728224, 11728224},
    {kTanh, DType::kFloat32, 64, 120, 256, 512, 1, 1, 89260800, 89260800},
    {kTanh, DType::kFloat32, 64, 35, 200, 256, 2, 1, 54252288, 54252288},
    {kTanh, DType::kFloat16, 16, 20, 200, 200, 2, 1, 19222400, 19222400},
    {kTanh, DType::kBFloat16, 32, 20, 64, 300, 2, 1, 19171168, 19171168},
    {kTanh, DType::kBFloat16, 64, 50, 200, 512, 2, 2, 81875712, 81875712},
    {kTanh, DType::kFloat32, 128, 70, 100, 300, 2, 2, 273936512, 177168512},
    {kGru, DType::kFloat32, 100, 20, 200, 200, 2, 1, 28458272, 28458272},
    {kGru, DType::kFloat32, 32, 120, 200, 650, 2, 1, 77387744, 77387744},
    {kGru, DType::kFloat32, 128, 35, 256, 128, 2, 1, 73598208, 73598208},
    {kLstm, DType::kBFloat16, 100, 35, 200, 256, 2, 1, 30144736, 30144736},
    {kLstm, DType::kFloat32, 20, 35, 200, 512, 3, 2, 135908640, 135908640},
};

Rnn network(const Measured& m) {
  Rnn r;
  r.mode = m.mode;
  r.dtype = m.dtype;
  r.batch = m.batch;
  r.length = m.length;
  r.steps = m.batch * m.length;
  r.input = m.input;
  r.hidden = m.hidden;
  r.layers = m.layers;
  r.directions = m.directions;
  return r;
}

void expect_close(std::int64_t found, std::int64_t real, const Measured& m) {
  constexpr std::int64_t kPadding = 4096;
  EXPECT_LE(std::abs(found - real), kPadding)
      << "batch " << m.batch << ", length " << m.length << ", input " << m.input << ", hidden "
      << m.hidden << ", layers " << m.layers << ", directions " << m.directions;
}

TEST(RnnWorkspace, IsWhatCudnnAskedFor) {
  for (const Measured& m : kMeasured) {
    const Rnn r = network(m);
    expect_close(rnn_workspace(r, RnnPass::kForward), m.forward, m);
    expect_close(rnn_workspace(r, RnnPass::kBackward), m.backward, m);
  }
}

TEST(RnnWorkspace, SmallStatesTakeOtherKernelsUpToALimitThatDependsOnThePass) {
  Rnn r = network(kMeasured[0]);
  r.hidden = 300;
  EXPECT_GT(rnn_workspace(r, RnnPass::kForward), rnn_workspace(r, RnnPass::kBackward));
  r.hidden = 256;
  EXPECT_EQ(rnn_workspace(r, RnnPass::kForward), rnn_workspace(r, RnnPass::kBackward));
}

TEST(RnnWorkspace, BFloat16AndProjectedNetworksDoNotTakeThem) {
  Rnn plain = network(kMeasured[0]);
  plain.dtype = DType::kFloat16;
  Rnn bfloat = plain;
  bfloat.dtype = DType::kBFloat16;
  Rnn projected = plain;
  projected.projection = 20;
  const std::int64_t usual = rnn_workspace(bfloat, RnnPass::kForward);
  EXPECT_LT(usual, rnn_workspace(plain, RnnPass::kForward));
  EXPECT_EQ(usual, rnn_workspace(projected, RnnPass::kForward));
}

}  // namespace
}  // namespace peakline::kernels
