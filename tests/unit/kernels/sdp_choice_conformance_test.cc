// Every choice that torch 2.11 made on an H200 over a grid of types, sizes, masks and heads.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "op_call.h"

namespace peakline {
namespace {

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields;
  std::stringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  return fields;
}

SdpQuery parse(const std::vector<std::string>& f) {
  const DType dtype = f[0] == "float32"   ? DType::kFloat32
                      : f[0] == "float16" ? DType::kFloat16
                                          : DType::kBFloat16;
  const std::int64_t size = std::stoll(f[1]);
  const std::int64_t queries = std::stoll(f[2]);
  const std::int64_t keys = std::stoll(f[3]);
  const std::int64_t heads = std::stoll(f[4]);
  const std::int64_t kv = std::stoll(f[5]);
  SdpQuery q;
  q.query = test::tensor({2, heads, queries, size}, dtype);
  q.key = q.value = test::tensor({2, kv, keys, size}, dtype);
  q.mask = test::none();
  if (f[6] == "bool") q.mask = test::tensor({2, 1, queries, keys}, DType::kBool);
  if (f[6] == "float") q.mask = test::tensor({2, 1, queries, keys}, dtype);
  if (f[6] == "head") q.mask = test::tensor({1, heads, queries, keys}, dtype);
  q.dropout = std::stod(f[7]);
  q.causal = f[8] == "1";
  q.needs_grad = f[9] == "1";
  q.enable_gqa = heads != kv;
  return q;
}

TEST(SdpChoice, AgreesWithARealH200OverTheWholeGrid) {
  std::ifstream file(PEAKLINE_TEST_DATA "/kernels/sdp_choices_h200.csv");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  const DeviceProfile gpu = test::h200();
  int rows = 0;
  int wrong = 0;
  while (std::getline(file, line)) {
    const std::vector<std::string> fields = split(line);
    ASSERT_EQ(fields.size(), 11U) << line;
    const SdpBackend chosen = sdp_choice(parse(fields), gpu, {});
    ++rows;
    if (chosen == static_cast<SdpBackend>(std::stoi(fields[10]))) continue;
    if (++wrong <= 20) ADD_FAILURE() << line << " but " << static_cast<int>(chosen);
  }
  EXPECT_GT(rows, 2000);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace peakline
