#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <peakline/estimate_text.h>

namespace peakline {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

Json answer() {
  const Json step = {{"peak_allocated", 9 * kGiB}, {"peak_reserved", 11 * kGiB}};
  return {
      {"device", "cuda:0"},
      {"gpu", "NVIDIA H200"},
      {"torch", "2.13.0+cpu"},
      {"peak_allocated", 10 * kGiB},
      {"peak_reserved", 12 * kGiB},
      {"memory_limit", 24 * kGiB},
      {"fits", true},
      {"segments", 1234},
      {"retries", 0},
      {"ooms", 0},
      {"peak", {{"step", 2}, {"phase", "backward"}, {"op", "aten::mm"}, {"module", "Model.head"}}},
      {"by_subcategory", {{"Parameter / Sharded", 4 * kGiB}, {"Activation", 6 * kGiB}}},
      {"modules",
       {{{"path", "Model"}, {"peak", 8 * kGiB}, {"by_category", {{"Parameter", 4 * kGiB}}}},
        {{"path", "Model.head"}, {"peak", 2 * kGiB}, {"by_category", {{"Activation", kGiB}}}}}},
      {"steps", {step, step, step}},
      {"steps_completed", 3},
      {"devices", Json::array()},
      {"warnings", Json::array()},
  };
}

std::string text(const Json& json) {
  const Result<std::string> found = estimate_text(json.dump(), "train.py", 1.25, Paint(false));
  return found.ok() ? *found : found.status().message();
}

std::string text_with(std::initializer_list<std::pair<const char*, Json>> changes) {
  Json json = answer();
  for (const auto& [key, value] : changes) json[key] = value;
  return text(json);
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::size_t widest(const std::string& text) {
  std::size_t most = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    most = std::max(most, width(std::string_view(text).substr(at, end - at)));
    at = end + 1;
  }
  return most;
}

TEST(EstimateText, APartialAnswerFitsOnlySoFar) {
  EXPECT_TRUE(has(text_with({{"partial", true}}), "fits so far, 12.00 GiB to spare"));
  EXPECT_TRUE(
      has(text_with({{"partial", true}, {"ooms", 1}}), "fits so far: the script went on after"));
  EXPECT_FALSE(has(text_with({{"partial", false}}), "so far"));
}

TEST(EstimateText, IsTheWholeAnswerInOrder) {
  EXPECT_EQ(text(answer()), R"(train.py, torch 2.13.0+cpu, 3 steps in 1.25 s

cuda:0  NVIDIA H200
  Peak allocated    10.00 GiB   step 2, backward
                                aten::mm
                                in Model.head
  Peak reserved     12.00 GiB   20.0% above allocated, 1,234 segments
  Memory limit      24.00 GiB   fits, 12.00 GiB to spare

By category at the peak
  Parameter / Sharded       4.000 GiB   40.0%  ████████████
  Activation                6.000 GiB   60.0%  ██████████████████

Top modules at the peak
  Module      Total  Parameter  Gradient  Activation       Rest
  Model   8.000 GiB  4.000 GiB         -           -  4.000 GiB
    head  2.000 GiB          -         -   1.000 GiB  1.000 GiB

Steps
  Step  Peak allocated  Peak reserved
  1          9.000 GiB      11.00 GiB
  2          9.000 GiB      11.00 GiB
  3          9.000 GiB      11.00 GiB
)");
}

TEST(EstimateText, OneStepAndOneSegmentAreSaidInTheSingular) {
  const std::string found = text_with({{"steps_completed", 1}, {"segments", 1}, {"retries", 1}});
  EXPECT_TRUE(has(found, ", 1 step in 1.25 s"));
  EXPECT_TRUE(has(found, "above allocated, 1 segment, 1 retry\n"));
}

TEST(EstimateText, OfNothingAllocatedThereIsNoShareAndNoCategory) {
  const std::string found = text_with({{"peak_allocated", 0},
                                       {"peak_reserved", 0},
                                       {"by_category", Json::object()},
                                       {"by_subcategory", Json::object()},
                                       {"segments", 0},
                                       {"retries", 1}});
  EXPECT_TRUE(has(found, "  Peak reserved           0 B   1 retry\n"));
  EXPECT_FALSE(has(found, "By category"));
}

TEST(EstimateText, SaysHowSureItIsAndRoundsNothingAway) {
  EXPECT_TRUE(has(text_with({{"confidence", {{"exact", 10}, {"modelled", 0}, {"guessed", 0}}}}),
                  " 100.0% exact\n"));
  const std::string found =
      text_with({{"confidence",
                  {{"exact", 999'900}, {"modelled", 40}, {"guessed", 30}, {"outputs_only", 30}}}});
  EXPECT_TRUE(has(found, " >99.9% exact, <0.1% modelled, <0.1% guessed,\n"));
  EXPECT_TRUE(has(found, " <0.1% outputs only\n"));
}

TEST(EstimateText, SaysHowLongAStepTakesAndWhy) {
  Json json = answer();
  json["step_ms"] = 41.4;
  json["gpu_busy_ms"] = 33.12;
  json["bound_by"] = "host";
  json["mfu"] = 0.25;
  json["timed_by"] = "measured";
  json["tokens_per_s"] = 98765.4;
  const std::string found = text(json);
  EXPECT_NE(found.find("Time per step"), std::string::npos);
  EXPECT_NE(found.find("41.40 ms"), std::string::npos);
  EXPECT_NE(found.find("bound by host; GPU busy 80%"), std::string::npos);
  EXPECT_NE(found.find("98,765 tokens/s"), std::string::npos);
  EXPECT_NE(found.find("MFU 25.0%"), std::string::npos);
  EXPECT_EQ(text(answer()).find("Time per step"), std::string::npos);
}

TEST(EstimateText, SaysWhyItDoesNotFit) {
  const Json no(false);
  EXPECT_TRUE(has(text_with({{"fits", no}, {"ooms", 2}}), "does not fit: out of memory 2 times"));
  EXPECT_TRUE(has(text_with({{"fits", no}, {"ooms", 1}, {"needed_reserved", 30 * kGiB}}),
                  "  Would do          30.00 GiB   reserved, without the limit\n"));
  EXPECT_TRUE(has(text_with({{"fits", no}, {"memory_spare", -kGiB}}),
                  "does not fit: 1.000 GiB too little"));
  EXPECT_TRUE(has(text_with({{"fits", true}, {"ooms", 1}}), "fits: the script went on after"));
}

TEST(EstimateText, SaysWhoMadeTheStepsThatItIsPartialAndTheSettings) {
  const std::string found = text_with(
      {{"steps_by", "Adam"}, {"partial", true}, {"allocator_conf", "max_split_size_mb:64"}});
  EXPECT_TRUE(has(found, "train.py, torch 2.13.0+cpu, 3 steps of Adam in 1.25 s; partial\n"));
  EXPECT_TRUE(has(found, "  Allocator                     max_split_size_mb:64\n"));
}

TEST(EstimateText, SaysWhatFailedAndWhatWouldHelp) {
  std::string message = "CUDA out of memory. Tried to allocate 2.00 GiB.";
  for (int i = 0; i < 30; ++i) message += " Words.";
  const std::string found = text_with(
      {{"ooms", 1},
       {"fits", false},
       {"oom",
        {{"message", message},
         {"where", "It failed in step 1, Model.head."},
         {"by_category", {{"Parameter", 4 * kGiB}}},
         {"by_module", {{"Model.head", 2 * kGiB}, {"(no module)", kGiB}}},
         {"by_line", {{"model.py:12", 3 * kGiB}}},
         {"fragmentation", "1.000 GiB lay free inside segments."},
         {"advice", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True would let it pass."},
         {"would_help", {"--batch-size 4 instead of 8 fits."}}}}});
  EXPECT_TRUE(has(found, "--batch-size 4 instead of 8 fits."));
  EXPECT_TRUE(has(found, "Tried to allocate 2.00 GiB"));
  EXPECT_TRUE(has(found, "By module: Model.head 2.000 GiB, (no module) 1.000 GiB."));
  EXPECT_TRUE(has(found, "By line: model.py:12 3.000 GiB."));
  EXPECT_TRUE(has(found, "expandable_segments:True"));
  EXPECT_LE(widest(found), kColumns);
}

TEST(EstimateText, ALeakIsNotAmongWhatCouldNotBeKnown) {
  const std::string leak = "memory on cuda:0 grows with every step: a.py:1 keeps 1 B of each";
  const std::string found = text_with({{"warnings", {"this is a guess", leak}}});
  EXPECT_TRUE(has(found, "\nLeaks\n  - " + leak + "\n"));
  EXPECT_TRUE(has(found, "\nWhat the estimate could not know\n  - this is a guess\n"));
}

TEST(EstimateText, OddNamesNeitherWidenTheTableNorReachTheTerminal) {
  const std::string found =
      text_with({{"modules", {{{"path", std::string(300, 'M') + "\x1b[2J"}, {"peak", kGiB}}}},
                 {"warnings", {std::string(200, 'w') + " \x1b[2J"}}});
  EXPECT_LE(widest(found), kColumns);
  EXPECT_EQ(found.find('\x1b'), std::string::npos);
}

TEST(EstimateText, OfManyRanksTheLargestAreListedInOrder) {
  Json ranks = Json::array();
  for (int i = 0; i < 18; ++i) {
    ranks.push_back({{"rank", i}, {"peak_allocated", kGiB}, {"peak_reserved", kGiB + i}});
  }
  const std::string found = text_with({{"ranks", ranks}, {"rank", 17}});
  EXPECT_TRUE(has(found, "\nRanks, one of each kind\n"));
  EXPECT_TRUE(has(found, "\n  2          1.000 GiB      1.000 GiB\n"));
  EXPECT_FALSE(has(found, "\n  1          1.000 GiB"));
  EXPECT_TRUE(has(found, "\n  17         1.000 GiB      1.000 GiB  the largest\n"));
  EXPECT_TRUE(has(found, "  2 smaller ones\n"));
}

TEST(EstimateText, TellsOfNcclWhichIsOutsideOfTheAllocator) {
  const std::string found = text_with({{"nccl_memory", kGiB},
                                       {"peak_with_nccl", 13 * kGiB},
                                       {"nccl_guessed", true},
                                       {"communicators", {8}},
                                       {"memory_spare", 11 * kGiB}});
  EXPECT_TRUE(has(found, "  With NCCL         13.00 GiB   1 communicator, guessed\n"));
  EXPECT_TRUE(has(found, "fits, 11.00 GiB to spare"));
}

TEST(EstimateText, WhatIsNoAnswerIsRefused) {
  EXPECT_FALSE(estimate_text("[1", "x", 0, Paint(false)).ok());
  EXPECT_FALSE(estimate_text("[1]", "x", 0, Paint(false)).ok());
  EXPECT_TRUE(estimate_text("{}", "x", 0, Paint(false)).ok());
  EXPECT_TRUE(estimate_text(R"({"device": "cuda:0", "steps": 3, "modules": [1], "peak": []})", "x",
                            0, Paint(false))
                  .ok());
}

}  // namespace
}  // namespace peakline
