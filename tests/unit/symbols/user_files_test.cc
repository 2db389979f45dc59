// Getting at files that are gone, hidden in other namespaces, or traps; and perf maps.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/symbols/sample_file.h"
#include "tests/unit/symbols/test_support.h"
#include "xenprof/symbols/file_access.h"
#include "xenprof/symbols/live_symbolizer.h"

namespace xenprof::symbols {
namespace {

using ::testing::HasSubstr;

TEST(UserFiles, ANotedFileOutlivesItsDeletion) {
  FakeRoot root;
  const std::string bytes = ReadFile(SamplePath("plain"));
  const std::string path = root.Write("/lib/short-lived.so", bytes);
  LiveSymbolizerOptions options;
  options.root = root.path();
  LiveSymbolizer symbolizer(options);
  const MappingInfo mapping = FileMapping("/lib/short-lived.so", BuildIdOf(bytes));
  symbolizer.Note(mapping);
  ASSERT_EQ(unlink(path.c_str()), 0);
  const uint64_t hidden = SampleOffset("plain", "hidden");
  EXPECT_EQ(NameAt(symbolizer.Resolve(mapping, {hidden}), hidden), kHidden);
}

TEST(UserFiles, KeptFilesAreBoundedInNumberAndAge) {
  FakeRoot root;
  FileKeeper keeper(root.path(), 10, absl::ZeroDuration());
  for (int i = 0; i < 30; ++i) {
    const std::string path = "/lib/" + std::to_string(i);
    root.Write(path, "x");
    keeper.Note(FileMapping(path));
  }
  EXPECT_EQ(keeper.size(), 10u);
  EXPECT_TRUE(keeper.Kept(FileMapping("/lib/29")).valid());
  EXPECT_FALSE(keeper.Kept(FileMapping("/lib/0")).valid());
  usleep(1000);
  keeper.Expire();
  EXPECT_EQ(keeper.size(), 0u);
}

TEST(UserFiles, ADeletedFileIsFoundThroughWhoHasItMapped) {
  FakeRoot folder;
  const std::string bytes = ReadFile(SamplePath("no_id"));
  const std::string path = folder.Write("/mapped.so", bytes);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* mapped = mmap(nullptr, bytes.size(), PROT_READ, MAP_PRIVATE, fd, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  close(fd);
  ASSERT_EQ(unlink(path.c_str()), 0);
  folder.Write("/mapped.so", "another file has the name now");

  LiveSymbolizer symbolizer({});
  MappingInfo mapping = FileMapping(path);
  mapping.deleted = true;
  mapping.pids = {static_cast<uint32_t>(getpid())};
  const uint64_t hidden = SampleOffset("no_id", "hidden");
  const Resolved resolved = symbolizer.Resolve(mapping, {hidden});
  munmap(mapped, bytes.size());
  if (resolved.functions.empty() && geteuid() != 0)
    GTEST_SKIP() << "/proc/PID/map_files needs privileges here";
  EXPECT_EQ(NameAt(resolved, hidden), kHidden) << resolved.problem;
  EXPECT_THAT(resolved.source, HasSubstr("map_files"));
}

TEST(UserFiles, AFileInAnotherMountNamespaceIsFound) {
  FakeRoot folder;
  folder.Write("/inside/placeholder", "");
  const std::string inside = folder.path() + "/inside";
  const std::string bytes = ReadFile(SamplePath("plain"));
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const bool hidden = unshare(CLONE_NEWNS) == 0 &&
                        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                        mount("tmpfs", inside.c_str(), "tmpfs", 0, nullptr) == 0;
    if (hidden) {
      const int fd = open((inside + "/sample.so").c_str(), O_WRONLY | O_CREAT, 0644);
      if (write(fd, bytes.data(), bytes.size()) < 0) _exit(1);
      close(fd);
    }
    const char answer = hidden ? 'y' : 'n';
    if (write(ready[1], &answer, 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  char answer = 'n';
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  close(ready[0]);
  close(ready[1]);
  MappingInfo mapping = FileMapping(inside + "/sample.so", BuildIdOf(bytes));
  mapping.pids = {static_cast<uint32_t>(child)};
  const uint64_t hidden = SampleOffset("plain", "hidden");
  LiveSymbolizer symbolizer({});
  Resolved resolved;
  if (answer == 'y') {
    EXPECT_FALSE(std::filesystem::exists(inside + "/sample.so")) << "it is hidden from here";
    resolved = symbolizer.Resolve(mapping, {hidden});
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  if (answer != 'y') GTEST_SKIP() << "no right to make a mount namespace here";
  EXPECT_EQ(NameAt(resolved, hidden), kHidden) << resolved.problem;
  EXPECT_THAT(resolved.source, HasSubstr("/root" + inside));
}

TEST(UserFiles, SymbolRootsStandForAnotherMachine) {
  FakeRoot copy;
  const std::string bytes = ReadFile(SamplePath("plain"));
  copy.Write("/usr/lib/that-machine.so", bytes);
  LiveSymbolizerOptions options;
  options.live = false;
  options.symbol_roots = {copy.path()};
  LiveSymbolizer symbolizer(options);
  const uint64_t hidden = SampleOffset("plain", "hidden");
  const MappingInfo mapping = FileMapping("/usr/lib/that-machine.so", BuildIdOf(bytes));
  EXPECT_EQ(NameAt(symbolizer.Resolve(mapping, {hidden}), hidden), kHidden);
}

TEST(UserFiles, NothingBelowAFolderLeadsOutOfIt) {
  FakeRoot root;
  root.Write("/jail/etc/inside", "inside");
  root.Write("/secret", "outside");
  root.Link("/jail/absolute", "/etc/inside");
  root.Link("/jail/up", "../secret");
  const std::string jail = root.path() + "/jail";
  const auto content = [](const UniqueFd& fd) {
    char block[16] = {};
    return std::string(block, std::max<ssize_t>(0, pread(fd.get(), block, sizeof(block), 0)));
  };
  EXPECT_EQ(content(OpenBelow(jail, "/absolute")), "inside");
  EXPECT_FALSE(OpenBelow(jail, "/up").valid());
  EXPECT_FALSE(OpenBelow(jail, "/../secret").valid());
}

TEST(UserFiles, PipesAndDevicesAreNotOpened) {
  FakeRoot root;
  ASSERT_EQ(mkfifo((root.path() + "/pipe").c_str(), 0600), 0);
  EXPECT_FALSE(OpenBelow(root.path(), "/pipe").valid()) << "and did not wait for a writer";
  LiveSymbolizer symbolizer({});
  EXPECT_THAT(symbolizer.Resolve(FileMapping("/dev/zero"), {0}).problem, HasSubstr("not to be found"));
}

// A process in a fake /proc: 4711 outside, 12 inside its pid namespace.
class PerfMap : public ::testing::Test {
 protected:
  PerfMap() {
    WriteStatus(geteuid());
    mapping_.kind = FrameKind::kDom0User;
    mapping_.name = "//anon";
    mapping_.pid = 4711;
    options_.root = root_.path();
  }
  void WriteStatus(unsigned uid) {
    const std::string id = std::to_string(uid);
    root_.Write("/proc/4711/status",
                "Name:\tjava\nUid:\t" + id + "\t" + id + "\t" + id + "\t" + id + "\nNSpid:\t4711\t12\n");
  }
  std::string WriteMap(const std::string& bytes) {
    return root_.Write("/proc/4711/root/tmp/perf-12.map", bytes);
  }

  FakeRoot root_;
  MappingInfo mapping_;
  LiveSymbolizerOptions options_;
};

TEST_F(PerfMap, NamesGeneratedCode) {
  WriteMap(
      "7f0000001000 100 void Old::replaced()\n"
      "7f0000002000 80 _ZN3JitC1Ev\n"
      "0x7f0000003000 0x40 Interpreter\n"
      "nonsense\n"
      "7f0000001000 100 void New::in(its, place)\n");
  LiveSymbolizer symbolizer(options_);
  const Resolved resolved =
      symbolizer.Resolve(mapping_, {0x7f0000001010, 0x7f0000002001, 0x7f0000003010, 0x7f0000003040});
  EXPECT_EQ(NameAt(resolved, 0x7f0000001010), "void New::in(its, place)") << "what was generated later";
  EXPECT_EQ(NameAt(resolved, 0x7f0000002001), "Jit::Jit()");
  EXPECT_EQ(NameAt(resolved, 0x7f0000003010), "Interpreter");
  EXPECT_EQ(NameAt(resolved, 0x7f0000003040), "");
  EXPECT_THAT(resolved.source, HasSubstr("/tmp/perf-12.map"));
  EXPECT_THAT(resolved.problem, HasSubstr("1 lines"));
}

TEST_F(PerfMap, WithoutOneTheReasonIsGiven) {
  LiveSymbolizer symbolizer(options_);
  EXPECT_THAT(symbolizer.Resolve(mapping_, {0x7f0000001010}).problem, HasSubstr("/tmp/perf-12.map"));
  mapping_.pid = 99;
  EXPECT_THAT(symbolizer.Resolve(mapping_, {0x7f0000001010}).problem, HasSubstr("process 99 has ended"));
}

TEST_F(PerfMap, OutlivesItsProcessWhenNoted) {
  const std::string path = WriteMap("7f0000001000 100 before\n");
  LiveSymbolizer symbolizer(options_);
  symbolizer.Note(mapping_);
  {
    const int fd = open(path.c_str(), O_WRONLY | O_APPEND);
    const std::string more = "7f0000002000 100 after\n";
    ASSERT_EQ(write(fd, more.data(), more.size()), static_cast<ssize_t>(more.size()));
    close(fd);
  }
  std::filesystem::remove_all(root_.path() + "/proc/4711");
  for (int i = 0; i < 2; ++i) {
    const Resolved resolved = symbolizer.Resolve(mapping_, {0x7f0000001010, 0x7f0000002010});
    EXPECT_EQ(NameAt(resolved, 0x7f0000001010), "before");
    EXPECT_EQ(NameAt(resolved, 0x7f0000002010), "after");
  }
}

TEST_F(PerfMap, OfAnotherUserIsNotTrusted) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const std::string path = WriteMap("7f0000001000 100 planted\n");
  ASSERT_EQ(chown(path.c_str(), 4242, 4242), 0);
  LiveSymbolizer symbolizer(options_);
  const Resolved resolved = symbolizer.Resolve(mapping_, {0x7f0000001010});
  EXPECT_TRUE(resolved.functions.empty());
  EXPECT_THAT(resolved.problem, HasSubstr("belongs to another user"));
  WriteStatus(4242);
  EXPECT_EQ(NameAt(symbolizer.Resolve(mapping_, {0x7f0000001010}), 0x7f0000001010), "planted")
      << "it is its own";
}

}  // namespace
}  // namespace xenprof::symbols
