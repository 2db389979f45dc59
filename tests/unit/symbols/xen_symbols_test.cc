// Xen's names: a cut-out of a real /proc/xen/xensyms, and what must not be used.
#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/symbols/test_support.h"
#include "xenprof/symbols/live_symbolizer.h"

namespace xenprof::symbols {
namespace {

using ::testing::HasSubstr;

const std::string kId = "\x8f\x13\x3d\xbb\xef\xb3\x0b\xe6\x30\x9f\x04\x30\xa5\x01\x9e\x38\x19\x51\xf1\xd6";
constexpr uint64_t kLstarEnter = 0xffff82d040201180;
constexpr uint64_t kIdleLoop = 0xffff82d0402f7d80;

std::string XenTable() { return ReadFile(TestData("xensyms-extract.txt")); }

TEST(XenSymbols, ComeFromXensyms) {
  FakeRoot root;
  root.Write("/proc/xen/xensyms", XenTable());
  root.Write("/sys/hypervisor/properties/buildid", kId);
  LiveSymbolizer symbolizer(Options(root));
  const Resolved resolved = symbolizer.Resolve(
      XenMapping(),
      {0xffff82d040200002, kLstarEnter + 5, kIdleLoop + 0x10, 0xffff82d0403600a1, 0xffff82d0403efc5b});
  EXPECT_EQ(NameAt(resolved, 0xffff82d040200002), "start") << "rather than _start or _stext";
  EXPECT_EQ(NameAt(resolved, kLstarEnter + 5), "lstar_enter");
  EXPECT_EQ(NameAt(resolved, kIdleLoop + 0x10), "idle_loop") << "without its file";
  EXPECT_EQ(NameAt(resolved, 0xffff82d0403600a1), "") << "after _etext there is no code";
  EXPECT_EQ(NameAt(resolved, 0xffff82d0403efc5b), "") << "nor after _einittext";
  EXPECT_THAT(resolved.source, HasSubstr("/proc/xen/xensyms"));
  EXPECT_THAT(resolved.problem, HasSubstr("2 of 5"));

  const XenSymbolsInfo info = symbolizer.XenInfo();
  EXPECT_TRUE(info.available);
  EXPECT_TRUE(info.build_id_matches);
  EXPECT_EQ(info.build_id, kId);
  EXPECT_GT(info.symbols, 150u);
}

TEST(XenSymbols, KernelAddressesAreNotXens) {
  FakeRoot root;
  root.Write("/proc/xen/xensyms", XenTable() + "ffffffff81000000 T not_of_xen\n");
  LiveSymbolizer symbolizer(Options(root));
  EXPECT_TRUE(symbolizer.Resolve(XenMapping(), {0xffffffff81000004}).functions.empty());
}

TEST(XenSymbols, AnotherBuildIsNeverUsed) {
  FakeRoot root;
  root.Write("/proc/xen/xensyms", XenTable());
  root.Write("/sys/hypervisor/properties/buildid", kId);
  LiveSymbolizer symbolizer(Options(root));
  const Resolved resolved = symbolizer.Resolve(XenMapping(std::string(20, 'x')), {kLstarEnter + 5});
  EXPECT_TRUE(resolved.functions.empty());
  EXPECT_THAT(resolved.problem, HasSubstr("another Xen (build id 8f133dbb"));
}

TEST(XenSymbols, ImportTakesThisMachinesTableOnlyForTheSameBuild) {
  FakeRoot root;
  root.Write("/proc/xen/xensyms", XenTable());
  root.Write("/sys/hypervisor/properties/buildid", kId);
  LiveSymbolizerOptions options = Options(root);
  options.live = false;
  LiveSymbolizer symbolizer(options);
  EXPECT_THAT(symbolizer.Resolve(XenMapping(), {kLstarEnter}).problem, HasSubstr("--xen-symbols"));
  EXPECT_EQ(NameAt(symbolizer.Resolve(XenMapping(kId), {kLstarEnter}), kLstarEnter), "lstar_enter");
}

TEST(XenSymbols, ATextGivenByTheUserIsTakenAtItsWord) {
  FakeRoot root;
  for (const std::string& bytes : {XenTable(), Xz(XenTable()), Gzip(XenTable())}) {
    LiveSymbolizerOptions options = Options(root);
    options.live = false;
    options.xen_symbol_files = {root.Write("/given", bytes)};
    LiveSymbolizer symbolizer(options);
    const Resolved resolved = symbolizer.Resolve(XenMapping(kId), {kLstarEnter + 1});
    EXPECT_EQ(NameAt(resolved, kLstarEnter + 1), "lstar_enter");
    EXPECT_EQ(resolved.source, root.path() + "/given");
  }
}

TEST(XenSymbols, AMapIsUsedBesideAnImageOfTheRightBuild) {
  FakeRoot root;
  root.Write("/sys/hypervisor/properties/buildid", kId);
  root.Write("/boot/xen-4.17.map", XenTable());
  const std::string image =
      std::string(300 << 10, 'i') + std::string("\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0", 16);
  root.Write("/boot/xen-4.17.gz", Gzip(image + std::string(20, 'y') + std::string(1000, 'i')));
  LiveSymbolizer symbolizer(Options(root));
  Resolved resolved = symbolizer.Resolve(XenMapping(), {kLstarEnter});
  EXPECT_TRUE(resolved.functions.empty());
  EXPECT_THAT(resolved.problem, HasSubstr("xen-4.17.map is not known to be of the Xen in question"));

  root.Write("/boot/xen-4.17.gz", Gzip(image + kId + std::string(1000, 'i')));
  resolved = symbolizer.Resolve(XenMapping(), {kLstarEnter});
  EXPECT_EQ(NameAt(resolved, kLstarEnter), "lstar_enter");
}

TEST(XenSymbols, IdleFunctionsAreKnown) {
  FakeRoot root;
  root.Write("/proc/xen/xensyms", XenTable());
  LiveSymbolizer symbolizer(Options(root));
  const auto ranges = symbolizer.XenIdleRanges();
  const auto idle = [&ranges](uint64_t address) {
    return std::any_of(ranges.begin(), ranges.end(), [address](const auto& range) {
      return range.first <= address && address < range.second;
    });
  };
  EXPECT_TRUE(std::is_sorted(ranges.begin(), ranges.end()));
  EXPECT_TRUE(idle(kIdleLoop));
  EXPECT_TRUE(idle(0xffff82d040287120 + 0x3cf)) << "the last byte of mwait_idle";
  EXPECT_FALSE(idle(0xffff82d040287120 + 0x3d0)) << "mwait_idle_cpu_init";
  EXPECT_TRUE(idle(0xffff82d0402f7230)) << "default_idle";
  EXPECT_TRUE(idle(0xffff82d040277a00)) << "acpi_processor_idle";
  EXPECT_FALSE(idle(kLstarEnter));
  EXPECT_FALSE(idle(0xffff82d040249ed0)) << "get_cpu_idle_time is for those who ask";
}

TEST(XenSymbols, WithoutAnySourceTheReasonIsGiven) {
  FakeRoot root;
  LiveSymbolizer symbolizer(Options(root));
  EXPECT_THAT(symbolizer.Resolve(XenMapping(), {kLstarEnter}).problem, HasSubstr("no Xen symbols"));
  EXPECT_FALSE(symbolizer.XenInfo().available);
  EXPECT_TRUE(symbolizer.XenIdleRanges().empty());
}

}  // namespace
}  // namespace xenprof::symbols
