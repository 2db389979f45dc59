#include "xenprof/xen/perf_probe.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cerrno>

#include "temp_tree.h"
#include "xenprof/xen/xen_symbol_files.h"

namespace xenprof::xen {
namespace {

TEST(ProbePerfEvent, CpuClockGivesSamplesHere) {
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  const PerfProbeResult result = ProbePerfEvent({.hardware = false, .cpu = 0, .limit_ms = 2000});
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  if (result.error == EACCES || result.error == EPERM || result.error == ENOSYS) {
    GTEST_SKIP() << "perf events are not allowed here: " << ExplainPerfError(result.error);
  }
  EXPECT_EQ(result.error, 0);
  EXPECT_GT(result.samples, 0u);
  EXPECT_GT(result.count, 0u);
}

TEST(ProbePerfEvent, NoSuchCpu) {
  const PerfProbeResult result = ProbePerfEvent({.hardware = false, .cpu = 100000, .limit_ms = 10});
  EXPECT_NE(result.error, 0);
  EXPECT_FALSE(ExplainPerfError(result.error).empty());
}

TEST(ElfBuildId, OfThisProgramAndOfWhatIsNoElf) {
  const auto own = ElfBuildId("/proc/self/exe");
  if (own.ok()) {
    EXPECT_GE(own->size(), 8u);
  } else {
    EXPECT_TRUE(absl::IsNotFound(own.status()));  // linked without one
  }
  TempTree tree;
  EXPECT_FALSE(ElfBuildId(tree.Write("/text", "no ELF")).ok());
  EXPECT_FALSE(ElfBuildId(tree.Write("/cut", "\177ELF\2\1\1")).ok());
  EXPECT_FALSE(ElfBuildId(tree.root() + "/missing").ok());
}

TEST(XenSymbolFiles, MatchesByBuildIdOnly) {
  TempTree tree;
  const auto own = ElfBuildId("/proc/self/exe");
  if (!own.ok()) GTEST_SKIP() << "this program was linked without a build id";
  std::filesystem::create_directories(tree.root() + "/usr/lib/debug/boot");
  std::filesystem::copy_file("/proc/self/exe", tree.root() + "/usr/lib/debug/boot/xen-syms-4.17-amd64");
  EXPECT_NE(FindXenSymbolFiles(tree.root(), *own).matching, "");
  EXPECT_TRUE(FindXenSymbolFiles(tree.root(), *own).mismatched.empty());
  const XenSymbolFiles other = FindXenSymbolFiles(tree.root(), std::string(20, 'x'));
  EXPECT_EQ(other.matching, "");
  EXPECT_EQ(other.mismatched.size(), 1u);
  EXPECT_EQ(FindXenSymbolFiles(tree.root(), "").matching, "");
}

}  // namespace
}  // namespace xenprof::xen
