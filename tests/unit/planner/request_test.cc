#include "planner/request.h"

#include <gtest/gtest.h>

#include <random>

namespace peakline::planner {
namespace {

using Sizes = std::vector<std::int64_t>;

const std::string kPicture =
    "forward float16 channels_last deterministic=1 tf32=0 input=8,3,32,32 weight=64,3,7,5 "
    "output=8,64,16,15 padding=3,2 stride=2,2 dilation=1,1";

// The request with one word in place of another.
std::string with(const std::string& word, const std::string& other) {
  std::string text = kPicture;
  return text.replace(text.find(word), word.size(), other);
}

TEST(PlannerRequest, EveryFieldOfAConvolutionIsRead) {
  const auto c = parse_request(kPicture);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->pass, Kind::kForward);
  EXPECT_EQ(c->type, DataType::kHalf);
  EXPECT_TRUE(c->channels_last);
  EXPECT_TRUE(c->deterministic);
  EXPECT_FALSE(c->allow_tf32);
  EXPECT_EQ(c->input, (Sizes{8, 3, 32, 32}));
  EXPECT_EQ(c->weight, (Sizes{64, 3, 7, 5}));
  EXPECT_EQ(c->output, (Sizes{8, 64, 16, 15}));
  EXPECT_EQ(c->padding, (Sizes{3, 2}));
  EXPECT_EQ(c->stride, (Sizes{2, 2}));
  EXPECT_EQ(c->dilation, (Sizes{1, 1}));
}

TEST(PlannerRequest, EveryPassAndTypeHasItsWord) {
  EXPECT_EQ(parse_request(with("forward", "input_gradient"))->pass, Kind::kInputGradient);
  EXPECT_EQ(parse_request(with("forward", "weight_gradient"))->pass, Kind::kWeightGradient);
  EXPECT_EQ(parse_request(with("float16", "bfloat16"))->type, DataType::kBFloat16);
  EXPECT_EQ(parse_request(with("float16", "float32"))->type, DataType::kFloat);
  EXPECT_EQ(parse_request(with("float16", "float64"))->type, DataType::kDouble);
  EXPECT_FALSE(parse_request(with("channels_last", "contiguous"))->channels_last);
}

TEST(PlannerRequest, ThreeDimensionsAreTaken) {
  EXPECT_TRUE(parse_request(
      "weight_gradient float32 contiguous input=2,4,8,8,8 weight=4,4,3,3,3 output=2,4,8,8,8 "
      "padding=1,1,1 stride=1,1,1 dilation=1,1,1"));
}

TEST(PlannerRequest, SwitchesThatAreNotGivenAreTorchsDefaults) {
  const auto c = parse_request(
      "forward float32 contiguous input=2,4,8,8 weight=4,4,3,3 output=2,4,8,8 padding=1,1 "
      "stride=1,1 dilation=1,1");
  ASSERT_TRUE(c);
  EXPECT_FALSE(c->deterministic);
  EXPECT_TRUE(c->allow_tf32);
}

TEST(PlannerRequest, WhatIsNoConvolutionIsRefused) {
  EXPECT_FALSE(parse_request(""));
  EXPECT_FALSE(parse_request("forward"));
  EXPECT_FALSE(parse_request("forward float16 channels_last"));
  EXPECT_FALSE(parse_request(with("forward", "sideways")));
  EXPECT_FALSE(parse_request(with("float16", "int8")));
  EXPECT_FALSE(parse_request(kPicture + " colour=3"));
  EXPECT_FALSE(parse_request(kPicture + " padding"));
}

TEST(PlannerRequest, NumbersThatAreNoneAreRefused) {
  EXPECT_FALSE(parse_request(with("padding=3,2", "padding=")));
  EXPECT_FALSE(parse_request(with("padding=3,2", "padding=3,x")));
  EXPECT_FALSE(parse_request(with("padding=3,2", "padding=3;2")));
  EXPECT_FALSE(parse_request(with("padding=3,2", "padding=,")));
  EXPECT_FALSE(parse_request(with("padding=3,2", "padding=99999999999999999999,2")));
}

TEST(PlannerRequest, SizesOfDifferentDimensionsAreRefused) {
  EXPECT_FALSE(parse_request(with("padding=3,2", "padding=3")));
  EXPECT_FALSE(parse_request(with("weight=64,3,7,5", "weight=64,3,7")));
  EXPECT_FALSE(parse_request(with("output=8,64,16,15", "output=8,64,16,15,1")));
  EXPECT_FALSE(parse_request(
      "forward float32 contiguous input=2,4,8 weight=4,4,3 output=2,4,8 padding=1 stride=1 "
      "dilation=1"));
}

TEST(PlannerRequest, DamagedLinesAreRefusedOrConsistent) {
  std::mt19937 random(3);
  const std::string alphabet = kPicture + std::string("\0\n\t,=-+9\xff", 10);
  for (int i = 0; i < 20000; ++i) {
    std::string line = i % 4 == 0 ? std::string(random() % 80, ' ') : kPicture;
    const std::size_t changes = line.empty() ? 0 : 1 + random() % (i % 4 == 0 ? 200 : 5);
    for (std::size_t n = 0; n < changes; ++n) {
      line[random() % line.size()] = alphabet[random() % alphabet.size()];
    }
    const auto c = parse_request(line);
    if (!c) continue;
    ASSERT_TRUE(c->input.size() == 4 || c->input.size() == 5) << line;
    ASSERT_EQ(c->weight.size(), c->input.size()) << line;
    ASSERT_EQ(c->output.size(), c->input.size()) << line;
    ASSERT_EQ(c->padding.size() + 2, c->input.size()) << line;
    ASSERT_EQ(c->stride.size() + 2, c->input.size()) << line;
    ASSERT_EQ(c->dilation.size() + 2, c->input.size()) << line;
  }
}

TEST(PlannerAnswer, APlanIsOneLineWithItsKnobs) {
  const Plan plan{62, 1048707, 131, {{"TILE_SIZE", 3}, {"TILEK", 1}}};
  EXPECT_EQ(answer(plan), "plan engine=62 workspace=1048707 unsplit=131 TILEK=1 TILE_SIZE=3");
}

TEST(PlannerAnswer, ARefusalSaysWhy) { EXPECT_EQ(answer(Refused{"no kernel"}), "none no kernel"); }

}  // namespace
}  // namespace peakline::planner
