#include <gtest/gtest.h>

#include <peakline/counts.h>

namespace peakline {
namespace {

TEST(Counted, OneIsSingularAndOthersArePlural) {
  EXPECT_EQ(counted(1, "step"), "1 step");
  EXPECT_EQ(counted(0, "step"), "0 steps");
  EXPECT_EQ(counted(12345, "step"), "12,345 steps");
  EXPECT_EQ(counted(1, "retry", "retries"), "1 retry");
  EXPECT_EQ(counted(2, "retry", "retries"), "2 retries");
}

}  // namespace
}  // namespace peakline
