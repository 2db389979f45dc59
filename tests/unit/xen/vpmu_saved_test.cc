#include "xenprof/xen/vpmu_saved.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "temp_tree.h"

namespace xenprof::xen {
namespace {

const SavedVpmu kSaved{kBoot, PmuMode::kHv, 0x4};

TEST(SavedVpmu, RoundTrip) {
  for (PmuMode mode : {PmuMode::kOff, PmuMode::kSelf, PmuMode::kHv, PmuMode::kAll}) {
    const absl::StatusOr<SavedVpmu> parsed = ParseSavedVpmu(FormatSavedVpmu({kBoot, mode, 0xffffffff}));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->mode, mode);
    EXPECT_EQ(parsed->features, 0xffffffffu);
    EXPECT_EQ(parsed->boot_id, kBoot);
  }
}

TEST(SavedVpmu, EveryTruncationIsRefused) {
  const std::string text = FormatSavedVpmu(kSaved);
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(ParseSavedVpmu(text.substr(0, length)).ok()) << length;
  }
}

TEST(SavedVpmu, EveryChangedByteIsRefusedOrIsAnotherValue) {
  const std::string text = FormatSavedVpmu(kSaved);
  for (size_t at = 0; at < text.size(); ++at) {
    for (int byte : {0x00, 0x0a, 0x20, 0x7a, 0xff}) {
      std::string changed = text;
      changed[at] = static_cast<char>(byte);
      if (changed == text) continue;
      EXPECT_FALSE(ParseSavedVpmu(changed).ok()) << at << " " << byte;
    }
  }
}

TEST(SavedVpmu, HostileContents) {
  const std::string good = FormatSavedVpmu(kSaved);
  EXPECT_FALSE(ParseSavedVpmu(good + "mode all\n").ok());
  EXPECT_FALSE(ParseSavedVpmu(good + good).ok());
  EXPECT_FALSE(ParseSavedVpmu(std::string(1 << 20, 'x')).ok());
  EXPECT_FALSE(
      ParseSavedVpmu("xenprof-vpmu 2\nboot_id " + std::string(kBoot) + "\nmode hv\nfeatures 0x4\nend\n")
          .ok());
  EXPECT_FALSE(
      ParseSavedVpmu("xenprof-vpmu 1\nboot_id " + std::string(kBoot) + "\nmode \nfeatures 0x4\nend\n").ok());
  EXPECT_FALSE(ParseSavedVpmu("xenprof-vpmu 1\nboot_id " + std::string(kBoot) +
                              "\nmode hv\nfeatures 0x100000000\nend\n")
                   .ok());
}

class VpmuStoreTest : public testing::Test {
 protected:
  TempTree tree_;
  VpmuStore store_{tree_.root()};
};

TEST_F(VpmuStoreTest, SaveLoadRemove) {
  ASSERT_TRUE(store_.Load().ok());
  EXPECT_FALSE(store_.Load()->has_value());
  ASSERT_TRUE(store_.Save(kSaved).ok());
  EXPECT_FALSE(tree_.Exists("/vpmu-saved.new"));
  struct stat info;
  ASSERT_EQ(stat(store_.path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const auto loaded = store_.Load();
  ASSERT_TRUE(loaded.ok() && loaded->has_value());
  EXPECT_EQ((*loaded)->mode, PmuMode::kHv);
  EXPECT_EQ((*loaded)->features, 4u);
  ASSERT_TRUE(store_.Remove().ok());
  ASSERT_TRUE(store_.Remove().ok());
  EXPECT_FALSE(store_.Load()->has_value());
}

TEST_F(VpmuStoreTest, LeftoverOfAnInterruptedSaveIsNoObstacle) {
  tree_.Write("/vpmu-saved.new", "half");
  EXPECT_FALSE(store_.Load()->has_value());
  ASSERT_TRUE(store_.Save(kSaved).ok());
  EXPECT_TRUE(store_.Load()->has_value());
}

void ExpectRefused(VpmuStore& store, const TempTree& tree, const char* reason) {
  const auto loaded = store.Load();
  EXPECT_TRUE(absl::IsInvalidArgument(loaded.status())) << loaded.status();
  EXPECT_NE(loaded.status().message().find(reason), absl::string_view::npos) << loaded.status();
  EXPECT_FALSE(tree.Exists("/vpmu-saved"));
  struct stat info;
  EXPECT_EQ(lstat((tree.root() + "/vpmu-saved.refused").c_str(), &info), 0);
  EXPECT_TRUE(store.Load().ok());  // out of the way
}

TEST_F(VpmuStoreTest, CorruptFileIsMovedAside) {
  tree_.Write("/vpmu-saved", "garbage\n");
  chmod(store_.path().c_str(), 0600);
  ExpectRefused(store_, tree_, "first line");
}

TEST_F(VpmuStoreTest, SymbolicLinkIsNotFollowed) {
  tree_.Write("/elsewhere", FormatSavedVpmu(kSaved));
  ASSERT_EQ(symlink((tree_.root() + "/elsewhere").c_str(), store_.path().c_str()), 0);
  ExpectRefused(store_, tree_, "symbolic link");
  EXPECT_TRUE(tree_.Exists("/elsewhere"));
}

TEST_F(VpmuStoreTest, FileOthersMayWriteIsRefused) {
  tree_.Write("/vpmu-saved", FormatSavedVpmu(kSaved));
  chmod(store_.path().c_str(), 0666);
  ExpectRefused(store_, tree_, "others");
}

TEST_F(VpmuStoreTest, FifoDoesNotBlock) {
  ASSERT_EQ(mkfifo(store_.path().c_str(), 0600), 0);
  ExpectRefused(store_, tree_, "regular file");
}

TEST_F(VpmuStoreTest, FileOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  tree_.Write("/vpmu-saved", FormatSavedVpmu(kSaved));
  chmod(store_.path().c_str(), 0600);
  ASSERT_EQ(chown(store_.path().c_str(), 12345, 12345), 0);
  ExpectRefused(store_, tree_, "user 12345");
}

TEST_F(VpmuStoreTest, OneHolderAtATime) {
  ASSERT_TRUE(store_.Lock().ok());
  ASSERT_TRUE(store_.Lock().ok());
  {
    VpmuStore other(tree_.root());
    EXPECT_TRUE(absl::IsFailedPrecondition(other.Lock()));
  }
  VpmuStore missing(tree_.root() + "/missing");
  EXPECT_TRUE(absl::IsNotFound(missing.Lock()));
}

TEST(ReadBootId, ChecksItsForm) {
  TempTree tree;
  EXPECT_FALSE(ReadBootId(tree.root()).ok());
  tree.Write("/sys/kernel/random/boot_id", "rubbish\n");
  EXPECT_FALSE(ReadBootId(tree.root()).ok());
  tree.Write("/sys/kernel/random/boot_id", std::string(kBoot) + "\n");
  EXPECT_EQ(ReadBootId(tree.root()).value(), kBoot);
  EXPECT_TRUE(ReadBootId("/proc").ok());
}

}  // namespace
}  // namespace xenprof::xen
