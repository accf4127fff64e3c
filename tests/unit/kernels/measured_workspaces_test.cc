// Workspaces that cuDNN 9.19 asked for on an H200 under torch 2.11, beside the rules.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "kernels/rnn_workspace.h"
#include "op_call.h"

namespace peakline {
namespace {

using Fields = std::vector<std::string>;

std::vector<Fields> rows_of(const std::string& name) {
  std::ifstream file(PEAKLINE_TEST_DATA "/kernels/" + name);
  std::vector<Fields> rows;
  std::string line;
  std::getline(file, line);  // names of the columns
  while (std::getline(file, line)) {
    std::stringstream stream(line);
    Fields& fields = rows.emplace_back();
    for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  }
  return rows;
}

DType dtype_of(const std::string& name) {
  return name == "float32"   ? DType::kFloat32
         : name == "float16" ? DType::kFloat16
                             : DType::kBFloat16;
}

std::string norm(bool forward, const TensorMeta& x) {
  const TensorMeta c = test::tensor({x.sizes[1]});
  return forward ? test::run(test::call("aten::cudnn_batch_norm", {x, c, c, c, c, true, 0.1, 1e-5},
                                        {x, c, c}))
                 : test::run(test::call("aten::cudnn_batch_norm_backward",
                                        {x, x, c, c, c, c, c, 1e-5, test::tensor({0})}, {x, c, c}));
}

TEST(MeasuredWorkspaces, OfChannelsLastBatchNormsAreEqualToTheByte) {
  const std::vector<Fields> rows = rows_of("batch_norms_h200.csv");
  ASSERT_GE(rows.size(), 890U);
  for (const Fields& f : rows) {
    const TensorMeta x =
        test::channels_last({1, std::stoll(f[2]), std::stoll(f[3]), 1}, dtype_of(f[1]));
    const std::string events = norm(f[0] == "forward", x);
    EXPECT_TRUE(events.ends_with(" +" + f[4] + " -" + f[4]))
        << f[0] << " of " << f[3] << " pixels with " << f[2] << " channels: " << events
        << ", real: " << f[4];
  }
}

kernels::Rnn packed(const Fields& f) {
  kernels::Rnn r;
  r.mode = static_cast<kernels::RnnMode>(std::stoll(f[0]));
  r.dtype = dtype_of(f[1]);
  r.hidden = std::stoll(f[2]);
  r.input = std::stoll(f[3]);
  r.layers = std::stoll(f[4]);
  r.directions = std::stoll(f[5]);
  r.batch = std::stoll(f[6]);
  r.length = std::stoll(f[7]);
  r.steps = std::stoll(f[8]);
  r.training = f[9] == "1";
  r.packed = true;
  return r;
}

TEST(MeasuredWorkspaces, OfPackedSequencesAreEqualUnlessInputsAreWiderThanStates) {
  const std::vector<Fields> rows = rows_of("packed_rnns_h200.csv");
  ASSERT_EQ(rows.size(), 242U);
  int equal = 0;
  for (const Fields& f : rows) {
    const kernels::Rnn r = packed(f);
    const std::int64_t workspace = rnn_workspace(r, kernels::RnnPass::kForward);
    const std::int64_t real = std::stoll(f[10]);
    constexpr std::int64_t kPadding = 32;
    const bool same = std::abs(workspace - real) <= kPadding;
    equal += same ? 1 : 0;
    const bool wide = r.training && r.gates() > 1 && r.input > r.hidden;
    const bool deep = r.training && r.gates() == 1 && r.layers > 2;
    EXPECT_TRUE(same || wide || (deep && workspace < real * 11 / 10))
        << "mode " << f[0] << ", " << f[2] << " units: " << workspace << ", real: " << real;
    const std::int64_t reserve = r.training ? rnn_reserve(r) : 0;
    EXPECT_NEAR(static_cast<double>(reserve), std::stod(f[11]), 256.0);
  }
  EXPECT_GE(equal, 222);
}

}  // namespace
}  // namespace peakline
