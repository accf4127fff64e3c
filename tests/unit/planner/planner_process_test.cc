// The planner's process, with small shell programs in its place.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include <peakline/conv_planner.h>

#include "op_call.h"
#include "planner/request.h"

namespace peakline {
namespace {

namespace fs = std::filesystem;

const std::string kPlan = "plan engine=62 workspace=1048707 unsplit=131 TILE_SIZE=3 TILEK=1";
const std::string kGreets = "read device; echo 'cudnn 91900'; ";

ConvQuery picture() {
  ConvQuery q;
  q.pass = ConvPass::kInputGradient;
  q.dtype = DType::kFloat16;
  q.channels_last = true;
  q.deterministic = true;
  q.allow_tf32 = false;
  q.input = {8, 3, 32, 32};
  q.weight = {64, 3, 7, 7};
  q.output = {8, 64, 16, 16};
  q.padding = {3, 3};
  q.stride = {2, 2};
  q.dilation = {1, 1};
  return q;
}

class PlannerProcess : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "planner-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A planner whose program is this shell text; $1 is the folder.
  std::unique_ptr<ConvPlanner> planner(const std::string& text) {
    const fs::path program = folder_ / "program";
    std::ofstream(program) << "#!/bin/sh\n" << text << '\n';
    fs::permissions(program, fs::perms::owner_all);
    return planner_process({program.string(), folder_.string()}, test::h200());
  }
  std::string line_of(const std::string& file) const {
    std::string line;
    std::ifstream stream(folder_ / file);
    std::getline(stream, line);
    return line;
  }

  fs::path folder_;
};

std::string answers(const std::string& line) {
  return kGreets + "while read request; do echo '" + line + "'; done";
}

// Neither a running one nor one that ended and was not waited for.
bool no_child_is_left() { return waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD; }

// Asked twice: what failed once fails for good.
void expect_no_plans(ConvPlanner& planner) {
  EXPECT_FALSE(planner.plan(picture()));
  EXPECT_TRUE(no_child_is_left());
  EXPECT_FALSE(planner.plan(picture()));
  EXPECT_TRUE(no_child_is_left());
}

TEST_F(PlannerProcess, APlanIsReadWithItsKnobs) {
  const auto p = planner(answers(kPlan));
  const auto plan = p->plan(picture());
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->engine, 62);
  EXPECT_EQ(plan->workspace, 1048707);
  EXPECT_EQ(plan->unsplit_workspace, 131);
  EXPECT_EQ(plan->knobs, (std::map<std::string, std::int64_t>{{"TILE_SIZE", 3}, {"TILEK", 1}}));
}

TEST_F(PlannerProcess, ItsStatusTellsWhichCudnnAnswers) {
  const auto p = planner(answers(kPlan));
  EXPECT_EQ(p->status().state, PlannerStatus::State::kNotAsked);
  ASSERT_TRUE(p->plan(picture()));
  EXPECT_EQ(p->status().state, PlannerStatus::State::kWorks);
  EXPECT_EQ(p->status().version, "9.19.0");
  p->close();
  EXPECT_EQ(p->status().state, PlannerStatus::State::kClosed);
  EXPECT_EQ(p->status().version, "9.19.0");
}

TEST_F(PlannerProcess, ItsStatusTellsWhatWentWrong) {
  const auto problem = [this](const std::string& text) {
    const auto p = planner(text);
    EXPECT_FALSE(p->plan(picture()));
    EXPECT_EQ(p->status().state, PlannerStatus::State::kFailed);
    p->close();
    EXPECT_EQ(p->status().state, PlannerStatus::State::kFailed);
    return p->status().problem;
  };
  EXPECT_EQ(problem("echo 'none cuDNN 8.9 is too old'"), "cuDNN 8.9 is too old");
  EXPECT_EQ(problem("exit 1"), "it ended as soon as it was started");
  EXPECT_EQ(problem("echo hello"), "it does not greet as a planner does");
  EXPECT_EQ(problem(kGreets + "exit 1"), "it ended when it was asked");
  EXPECT_EQ(problem(answers("plan what")), "it answered what is no plan");
  EXPECT_EQ(planner_process({"/nowhere", "/"}, test::h200())->status().problem, "");
}

TEST_F(PlannerProcess, TheProgramStartsWithTheFirstQuestionAndEndsWithThePlanner) {
  auto p = planner(answers(kPlan));
  EXPECT_TRUE(no_child_is_left());
  EXPECT_TRUE(p->plan(picture()));
  EXPECT_FALSE(no_child_is_left());
  p.reset();
  EXPECT_TRUE(no_child_is_left());
}

TEST_F(PlannerProcess, AClosedPlannerHasNoPlansAndNoProgram) {
  const auto p = planner(answers(kPlan));
  ASSERT_TRUE(p->plan(picture()));
  p->close();
  expect_no_plans(*p);
}

TEST_F(PlannerProcess, APlannerClosedBeforeItsFirstQuestionStartsNothing) {
  const auto p = planner("touch \"$1/started\"");
  p->close();
  expect_no_plans(*p);
  EXPECT_FALSE(fs::exists(folder_ / "started"));
}

TEST_F(PlannerProcess, TheProgramReadsTheConvolutionThatWasAsked) {
  const auto p =
      planner(kGreets + "read request; echo \"$request\" > \"$1/request\"; echo '" + kPlan + "'");
  ASSERT_TRUE(p->plan(picture()));
  const auto read = planner::parse_request(line_of("request"));
  ASSERT_TRUE(read) << line_of("request");
  const ConvQuery q = picture();
  EXPECT_EQ(read->pass, planner::Kind::kInputGradient);
  EXPECT_EQ(read->type, planner::DataType::kHalf);
  EXPECT_TRUE(read->channels_last);
  EXPECT_TRUE(read->deterministic);
  EXPECT_FALSE(read->allow_tf32);
  EXPECT_EQ(read->input, q.input);
  EXPECT_EQ(read->weight, q.weight);
  EXPECT_EQ(read->output, q.output);
  EXPECT_EQ(read->padding, q.padding);
  EXPECT_EQ(read->stride, q.stride);
  EXPECT_EQ(read->dilation, q.dilation);
}

TEST_F(PlannerProcess, TheGpuIsDescribedInOneLineOfJson) {
  const auto p = planner("read device; echo \"$device\" > \"$1/device\"; echo 'cudnn 91900'");
  (void)p->plan(picture());
  const auto device = nlohmann::json::parse(line_of("device"), nullptr, false);
  ASSERT_TRUE(device.is_object());
  EXPECT_EQ(device.value("multiProcessorCount", 0), 132);
  EXPECT_EQ(device.value("deviceVer", 0), 900);
  EXPECT_EQ(device.value("deviceName", ""), "NVIDIA H200");
}

TEST_F(PlannerProcess, ARefusedConvolutionHasNoPlanAndTheNextHasOne) {
  const auto p = planner(kGreets + "read r; echo 'none no kernel'; read r; echo '" + kPlan + "'");
  EXPECT_FALSE(p->plan(picture()));
  EXPECT_TRUE(p->plan(picture()));
}

TEST_F(PlannerProcess, AProgramThatIsMissingGivesNoPlans) {
  const auto p = planner_process({(folder_ / "nowhere").string(), folder_.string()}, test::h200());
  expect_no_plans(*p);
}

TEST_F(PlannerProcess, AProgramThatCannotBeRunGivesNoPlans) {
  const auto p = planner(answers(kPlan));
  fs::permissions(folder_ / "program", fs::perms::owner_read);
  expect_no_plans(*p);
}

TEST_F(PlannerProcess, AProgramThatEndsAtOnceGivesNoPlans) { expect_no_plans(*planner("exit 3")); }

TEST_F(PlannerProcess, AProgramThatDiesBySignalGivesNoPlans) {
  expect_no_plans(*planner(kGreets + "read request; kill -SEGV $$"));
}

TEST_F(PlannerProcess, AProgramWithoutCudnnGivesNoPlans) {
  expect_no_plans(*planner("echo 'none libcudnn.so.9 is not here'; exit 1"));
}

TEST_F(PlannerProcess, AnswersThatAreNotPlansGiveNone) {
  for (const char* line :
       {"", "hello", "plan", "plan ", "plan engine", "plan engine=1", "plan engine=1 workspace=2",
        "plan engine=x workspace=2 unsplit=3", "plan engine=1 workspace=2 unsplit=",
        "plan engine=1 workspace=2 unsplit=3x", "plan engine=1 workspace=-2 unsplit=3",
        "plan engine=1 workspace=99999999999999999999 unsplit=3"}) {
    SCOPED_TRACE(line);
    expect_no_plans(*planner(answers(line)));
  }
}

TEST_F(PlannerProcess, AProgramThatDiesAfterItsFirstAnswerGivesNoFurtherPlans) {
  const auto p = planner(kGreets + "read request; echo '" + kPlan + "'; exit 0");
  EXPECT_TRUE(p->plan(picture()));
  expect_no_plans(*p);
}

TEST_F(PlannerProcess, AnAnswerInPiecesIsOneAnswer) {
  const auto p = planner(kGreets +
                         "read r; printf 'plan engine=1 work'; sleep 0.05; "
                         "printf 'space=2 unsplit=3\\n'");
  const auto plan = p->plan(picture());
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->workspace, 2);
}

TEST_F(PlannerProcess, SignalsWhileItWaitsChangeNothing) {
  struct sigaction before {};
  struct sigaction handler {};
  handler.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGALRM, &handler, &before), 0);
  const itimerval often{{0, 2000}, {0, 2000}};
  const itimerval never{};
  const auto p = planner(kGreets + "read request; sleep 0.1; echo '" + kPlan + "'");
  setitimer(ITIMER_REAL, &often, nullptr);
  const bool planned = p->plan(picture()).has_value();
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_TRUE(planned);
}

TEST_F(PlannerProcess, AForkAsksAndEndsAProgramOfItsOwn) {
  auto p = planner(answers(kPlan));
  ASSERT_TRUE(p->plan(picture()));
  const pid_t fork_of_us = fork();
  if (fork_of_us == 0) {
    const bool planned = p->plan(picture()).has_value();
    p.reset();
    _exit(planned && no_child_is_left() ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(fork_of_us, &status, 0), fork_of_us);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(p->plan(picture()));
}

TEST_F(PlannerProcess, ThreadsThatAskAtOnceEachHaveTheirAnswer) {
  // The plan's workspace is the batch of the question.
  const auto p = planner(kGreets +
                         "while read request; do b=${request#*input=}; "
                         "echo \"plan engine=1 workspace=${b%%,*} unsplit=0\"; done");
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::int64_t batch = 1; batch <= 4; ++batch) {
    threads.emplace_back([&, batch] {
      ConvQuery q = picture();
      q.input[0] = batch;
      for (int i = 0; i < 50; ++i) {
        const auto plan = p->plan(q);
        if (!plan || plan->workspace != batch) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(PlannerProcess, TheRealProgramWithoutALibraryGivesNoPlans) {
  expect_no_plans(*planner_process({PEAKLINE_PLANNER, folder_.string()}, test::h200()));
}

TEST_F(PlannerProcess, TheRealProgramWithAnEmptyLibraryGivesNoPlans) {
  std::ofstream(folder_ / "libcudnn.so.9").flush();
  expect_no_plans(*planner_process({PEAKLINE_PLANNER, folder_.string()}, test::h200()));
}

}  // namespace
}  // namespace peakline
