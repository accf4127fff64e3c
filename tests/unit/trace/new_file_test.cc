#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <peakline/new_file.h>
#include <peakline/trace.h>

namespace peakline {
namespace {

class NewFile : public ::testing::Test {
 protected:
  NewFile() : folder_(::testing::TempDir() + "peakline_new_file_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~NewFile() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string at(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream file(at(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_;
};

TEST_F(NewFile, NothingIsWrittenThroughALinkThatSomebodyPutThere) {
  std::ofstream(at("precious")) << "keep me";
  std::filesystem::create_symlink(at("precious"), at("run.peak"));
  const Result<int> file = open_new_file(at("run.peak"));
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.status().message().find("it is a symbolic link"), std::string::npos);
  EXPECT_FALSE(open_file_sink(at("run.peak")).ok());
  EXPECT_EQ(text("precious"), "keep me");
}

TEST_F(NewFile, ALinkToNothingMakesNoFileElsewhere) {
  std::filesystem::create_symlink(at("elsewhere"), at("run.peak"));
  EXPECT_FALSE(open_new_file(at("run.peak")).ok());
  EXPECT_FALSE(std::filesystem::exists(at("elsewhere")));
}

TEST_F(NewFile, AFileThatIsThereIsWrittenAnew) {
  std::ofstream(at("run.peak")) << "old";
  const Result<int> file = open_new_file(at("run.peak"));
  ASSERT_TRUE(file.ok());
  ::close(*file);
  EXPECT_EQ(text("run.peak"), "");
}

TEST_F(NewFile, TheSystemsOwnLinksAreFollowed) {
  const Result<int> file = open_new_file("/dev/stdout");
  if (file.ok()) ::close(*file);
  EXPECT_TRUE(file.ok() || file.status().message().find("link") == std::string::npos);
}

}  // namespace
}  // namespace peakline
