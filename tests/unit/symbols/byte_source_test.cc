#include "xenprof/symbols/byte_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <random>
#include <string>

#include "gtest/gtest.h"

namespace xenprof::symbols {
namespace {

class FileByteSourceTest : public testing::Test {
 protected:
  FileByteSourceTest() {
    for (size_t i = 0; i < 200'123; ++i) bytes_.push_back(static_cast<char>(random_()));
    std::string path = testing::TempDir() + "/bytes.XXXXXX";
    fd_ = mkostemp(path.data(), O_CLOEXEC);
    unlink(path.c_str());
    EXPECT_EQ(pwrite(fd_, bytes_.data(), bytes_.size(), 0), static_cast<ssize_t>(bytes_.size()));
    source_ = FileByteSource(UniqueFd(fd_), "bytes").value();
  }

  std::string Read(uint64_t offset, size_t size) {
    std::string out(size, '\0');
    out.resize(source_->ReadAt(offset, out.data(), size));
    return out;
  }

  std::mt19937_64 random_{1};
  std::string bytes_;
  int fd_;  // the source's
  std::shared_ptr<const ByteSource> source_;
};

TEST_F(FileByteSourceTest, AnyReadGivesWhatTheFileHas) {
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t offset = random_() % (bytes_.size() + 100);
    const size_t size = random_() % (i % 10 == 0 ? 20'000 : 300);
    ASSERT_EQ(Read(offset, size), offset > bytes_.size() ? "" : bytes_.substr(offset, size))
        << offset << " " << size;
  }
}

TEST_F(FileByteSourceTest, AFileThatShrinksEndsEarlyAndMayGrowAgain) {
  ASSERT_EQ(ftruncate(fd_, 100'000), 0);
  EXPECT_EQ(Read(99'990, 20), bytes_.substr(99'990, 10));
  EXPECT_EQ(Read(150'000, 20), "");
  ASSERT_EQ(pwrite(fd_, bytes_.data(), bytes_.size(), 0), static_cast<ssize_t>(bytes_.size()));
  EXPECT_EQ(Read(100'010, 20), bytes_.substr(100'010, 20));
  EXPECT_EQ(Read(150'000, 20), bytes_.substr(150'000, 20));
}

}  // namespace
}  // namespace xenprof::symbols
