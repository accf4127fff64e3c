#include "capture/source_lines.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace peakline::capture {
namespace {

class SourceLinesTest : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  ~SourceLinesTest() override { std::filesystem::remove(path_); }

  std::string path_ = ::testing::TempDir() + "source_lines_test.py";
  SourceLines lines_;
};

TEST_F(SourceLinesTest, ALineComesWithoutTheBlanksAroundIt) {
  const std::string file = write("def f():\n    return 1  \n");
  EXPECT_EQ(lines_.line(file, 1), "def f():");
  EXPECT_EQ(lines_.line(file, 2), "return 1");
}

TEST_F(SourceLinesTest, WhatIsNotThereIsEmpty) {
  const std::string file = write("x\n");
  EXPECT_EQ(lines_.line(file, 0), "");
  EXPECT_EQ(lines_.line(file, 2), "");
  EXPECT_EQ(lines_.line("<string>", 1), "");
  EXPECT_EQ(lines_.line("/nonexistent/file.py", 1), "");
  EXPECT_EQ(lines_.line("/dev/zero", 1), "");
}

TEST_F(SourceLinesTest, ALongLineIsCutBetweenCharacters) {
  std::string text(SourceLines::kLongest - 1, 'x');
  const std::string file = write(text + "\u00e9 and more\n");
  EXPECT_EQ(lines_.line(file, 1), text);
}

}  // namespace
}  // namespace peakline::capture
