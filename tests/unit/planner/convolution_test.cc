#include "planner/convolution.h"

#include <gtest/gtest.h>

#include "fake_cudnn.h"

namespace peakline::planner {
namespace {

using Sizes = std::vector<std::int64_t>;
using test::FakeCudnn;
using test::FakeDescriptor;
using test::FakeEngine;

Convolution picture(DataType type = DataType::kFloat) {
  Convolution c;
  c.type = type;
  c.input = {8, 3, 32, 30};
  c.weight = {64, 3, 7, 5};
  c.output = {8, 64, 16, 15};
  c.padding = {3, 2};
  c.stride = {2, 2};
  c.dilation = {1, 1};
  return c;
}

FakeEngine engine(std::int64_t index, std::vector<NumericalNote> notes = {}, bool runs = true) {
  FakeEngine made;
  made.index = index;
  made.notes = std::move(notes);
  made.runs = runs;
  return made;
}
FakeEngine broken(std::int64_t index) { return engine(index, {}, false); }

class Planning : public testing::Test {
 protected:
  Plan plan(const Convolution& c) const { return ConvolutionPlanner(api_, "{}").plan(c); }

  FakeCudnn cudnn_;
  Api api_ = FakeCudnn::api();
};

TEST_F(Planning, TheFirstEngineThatRunsIsTaken) {
  FakeEngine good = engine(2);
  good.workspace = 4096;
  cudnn_.instant = {broken(1), good, engine(3)};
  EXPECT_EQ(plan(picture()).engine, 2);
  EXPECT_EQ(plan(picture()).workspace, 4096);
  EXPECT_EQ(plan(picture()).unsplit_workspace, 4096);
}

TEST_F(Planning, TheFallbackIsAskedWhenNothingElseRuns) {
  cudnn_.instant = {broken(1)};
  cudnn_.fallback = {engine(9)};
  EXPECT_EQ(plan(picture()).engine, 9);
}

TEST_F(Planning, AConvolutionThatNoEngineRunsIsRefused) {
  EXPECT_THROW((void)plan(picture()), Refused);
  cudnn_.fallback = {broken(1)};
  EXPECT_THROW((void)plan(picture()), Refused);
}

TEST_F(Planning, EnginesThatRoundTheirInputsAreNeverTaken) {
  cudnn_.instant = {engine(1, {NumericalNote::kDownConverts}), engine(2)};
  EXPECT_EQ(plan(picture()).engine, 2);
}

TEST_F(Planning, OnlyDeterministicRunsSkipEnginesThatAreNot) {
  cudnn_.instant = {engine(1, {NumericalNote::kNondeterministic}), engine(2)};
  Convolution c = picture();
  EXPECT_EQ(plan(c).engine, 1);
  c.deterministic = true;
  EXPECT_EQ(plan(c).engine, 2);
}

TEST_F(Planning, TensorCoresMultiplyFloatsOnlyWhereTf32IsAllowed) {
  cudnn_.instant = {engine(1, {NumericalNote::kTensorCore}), engine(2)};
  Convolution c = picture();
  EXPECT_EQ(plan(c).engine, 1);
  c.allow_tf32 = false;
  EXPECT_EQ(plan(c).engine, 2);
  c.type = DataType::kHalf;
  EXPECT_EQ(plan(c).engine, 1);
}

FakeEngine splitting(const std::string& more = "") {
  FakeEngine e = engine(67);
  e.knobs = R"({"CUDNN_KNOB_TYPE_TILE_SIZE":9,"CUDNN_KNOB_TYPE_TILE_CGA_M":4,)"
            R"("CUDNN_KNOB_TYPE_WORKSPACE":0)" +
            more + "}";
  e.workspace = 23068883;
  e.unsplit_workspace = 22020243;
  return e;
}

TEST_F(Planning, AKernelThatMaySplitIsAlsoAskedWhatItNeedsWithout) {
  cudnn_.instant = {splitting()};
  const Plan p = plan(picture());
  EXPECT_EQ(p.workspace, 23068883);
  EXPECT_EQ(p.unsplit_workspace, 22020243);
  EXPECT_EQ(p.knobs, (std::map<std::string, std::int64_t>{
                         {"TILE_SIZE", 9}, {"TILE_CGA_M", 4}, {"WORKSPACE", 0}}));
}

TEST_F(Planning, AKernelWithAKnobThatIsNotKnownIsTakenAsItIs) {
  cudnn_.instant = {splitting(R"(,"CUDNN_KNOB_TYPE_NEW":5)")};
  EXPECT_EQ(plan(picture()).unsplit_workspace, 23068883);
}

TEST_F(Planning, AnEngineThatDescribesItselfBadlyStillHasAWorkspace) {
  FakeEngine e = engine(5);
  e.knobs = R"({"CUDNN_KNOB_TYPE_A":"x","B":2})";
  e.workspace = 77;
  cudnn_.instant = {e};
  EXPECT_EQ(plan(picture()).workspace, 77);
  EXPECT_TRUE(plan(picture()).knobs.empty());
  cudnn_.instant[0].knobs = "not JSON";
  EXPECT_EQ(plan(picture()).workspace, 77);
  cudnn_.instant[0].knobs = "[1, 2]";
  EXPECT_EQ(plan(picture()).workspace, 77);
}

TEST_F(Planning, TensorsAreDescribedWithTheStridesOfTheirLayout) {
  cudnn_.instant = {engine(1)};
  Convolution c = picture(DataType::kBFloat16);
  (void)plan(c);
  c.channels_last = true;
  (void)plan(c);
  ASSERT_EQ(cudnn_.graphs.size(), 2U);
  const auto input = [](const FakeDescriptor& graph) {
    constexpr int kInputOfForward = static_cast<int>(Attribute::kForwardAlpha) + 4;
    return graph.part(Attribute::kGraphOperations).parts.at(kInputOfForward).at(0);
  };
  const FakeDescriptor dense = input(cudnn_.graphs[0]);
  EXPECT_EQ(dense.read<std::int64_t>(Attribute::kTensorDimensions), c.input);
  EXPECT_EQ(dense.read<std::int64_t>(Attribute::kTensorStrides), (Sizes{2880, 960, 30, 1}));
  EXPECT_EQ(dense.read<DataType>(Attribute::kTensorDataType),
            std::vector<DataType>{DataType::kBFloat16});
  EXPECT_EQ(input(cudnn_.graphs[1]).read<std::int64_t>(Attribute::kTensorStrides),
            (Sizes{2880, 1, 90, 3}));
}

TEST_F(Planning, GradientsAreOperationsOfTheirOwn) {
  cudnn_.instant = {engine(1)};
  for (const Kind pass : {Kind::kForward, Kind::kInputGradient, Kind::kWeightGradient}) {
    Convolution c = picture();
    c.pass = pass;
    (void)plan(c);
    EXPECT_EQ(cudnn_.graphs.back().part(Attribute::kGraphOperations).kind, static_cast<int>(pass));
  }
}

TEST_F(Planning, SettingsArriveAndFloatsAreSummedInFloat) {
  cudnn_.instant = {engine(1)};
  (void)plan(picture(DataType::kHalf));
  constexpr int kSettings = static_cast<int>(Attribute::kForwardAlpha) + 2;
  const FakeDescriptor made =
      cudnn_.graphs.back().part(Attribute::kGraphOperations).parts.at(kSettings).at(0);
  EXPECT_EQ(made.read<std::int64_t>(Attribute::kConvolutionPrePaddings), (Sizes{3, 2}));
  EXPECT_EQ(made.read<std::int64_t>(Attribute::kConvolutionPostPaddings), (Sizes{3, 2}));
  EXPECT_EQ(made.read<std::int64_t>(Attribute::kConvolutionStrides), (Sizes{2, 2}));
  EXPECT_EQ(made.read<std::int64_t>(Attribute::kConvolutionDilations), (Sizes{1, 1}));
  EXPECT_EQ(made.read<DataType>(Attribute::kConvolutionComputeType),
            std::vector<DataType>{DataType::kFloat});
}

TEST_F(Planning, AGpuThatCudnnDoesNotUnderstandIsRefused) {
  EXPECT_THROW(ConvolutionPlanner(api_, "not a GPU"), Refused);
  EXPECT_THROW(ConvolutionPlanner(api_, ""), Refused);
}

TEST_F(Planning, EveryDescriptorIsGivenBack) {
  cudnn_.instant = {broken(1), splitting()};
  (void)plan(picture());
  EXPECT_TRUE(cudnn_.live.empty());
  cudnn_.instant = {broken(1)};
  EXPECT_THROW((void)plan(picture()), Refused);
  EXPECT_TRUE(cudnn_.live.empty());
}

TEST(OpenCudnn, AFolderWithoutTheLibrarySaysWhatIsMissing) {
  std::string problem;
  (void)open_cudnn("/nonexistent", problem);
  EXPECT_NE(problem.find("libcudnn.so.9"), std::string::npos) << problem;
}

}  // namespace
}  // namespace peakline::planner
