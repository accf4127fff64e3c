#include "allocator_suite.h"

namespace peakline::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(
    Settings, AllocatorSuite,
    ::testing::Values(SuiteSubject{"plain_2_11", "", {2, 11}},
                      SuiteSubject{"plain_2_12", "", {2, 12}},
                      SuiteSubject{"plain_2_15", "", {2, 15}},
                      SuiteSubject{"expandable_2_12", "expandable_segments:True", {2, 12}},
                      SuiteSubject{"expandable", "expandable_segments:True", {2, 13}},
                      SuiteSubject{"max_split", "max_split_size_mb:64", {2, 13}},
                      SuiteSubject{"expandable_max_split",
                                   "expandable_segments:True,max_split_size_mb:64",
                                   {2, 13}},
                      SuiteSubject{"roundup", "roundup_power2_divisions:[64:2,>:8]", {2, 13}},
                      SuiteSubject{"collect", "garbage_collection_threshold:0.5", {2, 13}},
                      SuiteSubject{"large_segment", "large_segment_size_mb:32", {2, 13}}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace peakline::testing
