#include "capture/spool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <vector>

namespace peakline::capture {
namespace {

std::size_t bytes_in(const Spool& spool) {
  const auto source = spool.source();
  std::array<std::byte, 4096> buffer;
  std::size_t all = 0;
  while (const std::size_t got = *(*source)->read(buffer)) all += got;
  return all;
}

// Files of this process may not grow beyond `bytes`, as on a disk that is full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, signal_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*signal_)(int);
};

TEST(Spool, IsReadFromItsBeginningWhileItIsWritten) {
  const auto spool = *Spool::open("");
  const auto sink = spool->sink();
  const std::vector<std::byte> chunk(3000);
  ASSERT_TRUE((*sink)->write(chunk).ok());
  EXPECT_EQ(bytes_in(*spool), 3000u);
  ASSERT_TRUE((*sink)->write(chunk).ok());
  EXPECT_EQ(bytes_in(*spool), 6000u);
}

TEST(Spool, AChunkThatDoesNotFitLeavesNothingBehindAndASmallerOneMayFollow) {
  const auto spool = *Spool::open("");
  const auto sink = spool->sink();
  {
    const FullDisk full(8192);
    EXPECT_TRUE((*sink)->write(std::vector<std::byte>(5000)).ok());
    EXPECT_FALSE((*sink)->write(std::vector<std::byte>(5000)).ok());
    EXPECT_TRUE((*sink)->write(std::vector<std::byte>(100)).ok());
  }
  EXPECT_EQ(bytes_in(*spool), 5100u);
}

TEST(Spool, ACopyHasWhatWasWrittenSoFar) {
  const auto spool = *Spool::open("");
  const auto sink = spool->sink();
  ASSERT_TRUE((*sink)->write(std::vector<std::byte>(100'000)).ok());
  const std::string path = testing::TempDir() + "/spool_copy.peak";
  ASSERT_TRUE(spool->copy_to(path).ok());
  EXPECT_EQ(bytes_in(**Spool::open_existing(path)), 100'000u);
  ::unlink(path.c_str());
  EXPECT_FALSE(spool->copy_to(testing::TempDir() + "/no/such/folder.peak").ok());
}

TEST(Spool, APipeIsRefusedWithASentence) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const auto spool = Spool::open_existing("/proc/self/fd/" + std::to_string(ends[0]));
  ASSERT_FALSE(spool.ok());
  EXPECT_NE(spool.status().message().find("is a pipe"), std::string::npos);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace peakline::capture
