// /proc/kallsyms: a cut-out of a real dom0's table, with module lines added.
#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/symbols/test_support.h"
#include "xenprof/symbols/live_symbolizer.h"
#include "xenprof/symbols/symbol_table.h"

namespace xenprof::symbols {
namespace {

using ::testing::HasSubstr;

constexpr char kModules[] =
    "ffffffffc0000000 t nvme_queue_rq\t[nvme]\n"
    "ffffffffc0000100 T nvme_init\t[nvme]\n"
    "ffffffffc0000200 d nvme_data\t[nvme]\n"
    "ffffffffc0005000 t e1000_clean\t[e1000]\n"
    "ffffffffc0004000 t e1000_xmit\t[e1000]\n"
    "ffffffffc0009000 t bpf_prog_6deef7357e7b4530_sd_fw\t[bpf]\n";

std::string KernelTable() { return ReadFile(TestData("kallsyms-extract.txt")) + kModules; }

TEST(KernelSymbols, NamesFunctionsOfTheKernel) {
  FakeRoot root;
  root.Write("/proc/kallsyms", KernelTable());
  LiveSymbolizer symbolizer(Options(root));
  const Resolved resolved =
      symbolizer.Resolve(KernelMapping(), {0xffffffff81000125, 0xffffffff81611803, 0xffffffff81611812});
  EXPECT_EQ(resolved.problem, "");
  EXPECT_EQ(resolved.source, "/proc/kallsyms");
  ASSERT_EQ(resolved.functions.size(), 3u);
  EXPECT_EQ(resolved.functions[0].name, "startup_64");
  EXPECT_EQ(resolved.functions[0].start, 0xffffffff81000123u);
  EXPECT_EQ(resolved.functions[0].size, 0x5du);
  EXPECT_EQ(resolved.functions[1].name, "memcpy") << "fewest underscores among aliases";
  EXPECT_EQ(resolved.functions[2].name, "memcpy_orig");
}

TEST(KernelSymbols, EveryFunctionOfTheTableIsFoundAtItsFirstAndLastByte) {
  FakeRoot root;
  root.Write("/proc/kallsyms",
             "ffffffff81000000 T first\nffffffff81000010 t second\nffffffff81000020 W third\n"
             "ffffffff81000030 T _etext\nffffffff81000040 D data\n");
  LiveSymbolizer symbolizer(Options(root));
  const Resolved resolved =
      symbolizer.Resolve(KernelMapping(), {0xffffffff80ffffff, 0xffffffff81000000, 0xffffffff8100000f,
                                           0xffffffff81000010, 0xffffffff8100001f, 0xffffffff81000020,
                                           0xffffffff8100002f, 0xffffffff81000030, 0xffffffff81000041});
  ASSERT_EQ(resolved.functions.size(), 3u);
  EXPECT_EQ(resolved.functions[0].name, "first");
  EXPECT_EQ(resolved.functions[1].name, "second");
  EXPECT_EQ(resolved.functions[2].name, "third");
  EXPECT_EQ(resolved.functions[2].start + resolved.functions[2].size, 0xffffffff81000030u)
      << "ends at _etext";
  EXPECT_THAT(resolved.problem, HasSubstr("3 of 9 addresses"));
}

TEST(KernelSymbols, PerCpuAndXenAddressesHaveNoNames) {
  FakeRoot root;
  root.Write("/proc/kallsyms", KernelTable() + "ffff82d040201180 T not_of_the_kernel\n");
  LiveSymbolizer symbolizer(Options(root));
  const Resolved resolved = symbolizer.Resolve(KernelMapping(), {0x1008, 0xffff82d040201182});
  EXPECT_TRUE(resolved.functions.empty());
  EXPECT_THAT(resolved.problem, HasSubstr("2 of 2"));
}

TEST(KernelSymbols, ModulesAreKeptApart) {
  FakeRoot root;
  root.Write("/proc/kallsyms", KernelTable());
  LiveSymbolizer symbolizer(Options(root));
  Resolved resolved = symbolizer.Resolve(KernelMapping("[nvme]"), {0xffffffffc0000010, 0xffffffffc0005004});
  ASSERT_EQ(resolved.functions.size(), 1u);
  EXPECT_EQ(resolved.functions[0].name, "nvme_queue_rq");
  EXPECT_THAT(resolved.problem, HasSubstr("1 of 2"));
  resolved = symbolizer.Resolve(KernelMapping("[e1000]"), {0xffffffffc0004fff, 0xffffffffc0005004});
  EXPECT_EQ(NameAt(resolved, 0xffffffffc0004fff), "e1000_xmit") << "lines of a module are in no order";
  EXPECT_EQ(NameAt(resolved, 0xffffffffc0005004), "e1000_clean");
  resolved = symbolizer.Resolve(KernelMapping("[kernel]"), {0xffffffffc0009010});
  EXPECT_EQ(NameAt(resolved, 0xffffffffc0009010), "bpf_prog_6deef7357e7b4530_sd_fw");
}

TEST(KernelSymbols, NothingIsReadForWhatIsKnown) {
  FakeRoot root;
  const std::string table = root.Write("/proc/kallsyms", KernelTable());
  LiveSymbolizer symbolizer(Options(root));
  symbolizer.Resolve(KernelMapping(), {0xffffffff81000125, 0xffffffff90000000, 0xffffffffc0000010});
  ASSERT_EQ(unlink(table.c_str()), 0);
  Resolved resolved = symbolizer.Resolve(KernelMapping(), {0xffffffff81000125, 0xffffffffc0000010});
  EXPECT_EQ(NameAt(resolved, 0xffffffff81000125), "startup_64");
  EXPECT_EQ(NameAt(resolved, 0xffffffffc0000010), "nvme_queue_rq");
  EXPECT_EQ(resolved.problem, "");

  symbolizer.KernelSymbolsChanged();
  resolved = symbolizer.Resolve(KernelMapping(), {0xffffffff81000125, 0xffffffffc0000010});
  EXPECT_EQ(NameAt(resolved, 0xffffffff81000125), "startup_64") << "the kernel itself does not change";
  EXPECT_EQ(NameAt(resolved, 0xffffffffc0000010), "") << "a module may";
  EXPECT_THAT(resolved.problem, HasSubstr("no kernel symbols"));
}

// A table of many blocks, of which a search opens a few: the same names as when all of it goes by.
TEST(SymbolTable, HasTheNeighboursOfEveryAddress) {
  std::mt19937 random(1);
  const auto below = [&random](uint64_t bound) { return random() % bound; };
  for (int round = 0; round < 20; ++round) {
    std::vector<std::pair<uint64_t, std::string>> symbols;
    uint64_t address = 0xffffffff81000000;
    for (int i = 0; i < 6000; ++i) {
      // Aliases, and pieces out of order as those of modules are.
      if (below(10) != 0) address += 1 + below(199);
      if (below(500) == 0) address = 0xffffffff81000000 + below(2000000);
      symbols.emplace_back(address, absl::StrCat("a_rather_long_name_of_a_function_", i));
    }
    SymbolTable table;
    for (const auto& [start, name] : symbols) {
      SymbolLine symbol;
      symbol.address = start;
      symbol.type = 't';
      symbol.name = name;
      symbol.module = round % 2 == 0 ? "" : "module";
      table.Add(symbol);
    }
    table.Finish();
    std::vector<uint64_t> addresses;
    for (int i = 0; i < 1 + 3 * round; ++i) {
      addresses.push_back(round % 3 == 0 ? symbols[below(6000)].first : 0xffffffff81000000 + below(2400000));
    }
    addresses.push_back(0xffffffff80000000);
    addresses.push_back(0xffffffff8fffffff);
    std::sort(addresses.begin(), addresses.end());
    std::vector<std::pair<uint64_t, std::string>> seen;
    ASSERT_TRUE(table.Around(addresses, [&](const SymbolLine& symbol) {
      EXPECT_EQ(symbol.module, round % 2 == 0 ? "" : "module");
      seen.emplace_back(symbol.address, std::string(symbol.name));
    }));
    for (uint64_t asked : addresses) {
      uint64_t before = 0, above = ~uint64_t{0};
      for (const auto& [start, name] : symbols) {
        if (start <= asked) before = std::max(before, start);
        if (start > asked) above = std::min(above, start);
      }
      for (const auto& symbol : symbols) {
        if (symbol.first != before && symbol.first != above) continue;
        ASSERT_NE(std::find(seen.begin(), seen.end(), symbol), seen.end()) << "round " << round;
      }
    }
    size_t text = 0;
    for (const auto& [start, name] : symbols) text += name.size() + 20;
    EXPECT_LT(table.memory_bytes() * 2, text);
  }
}

TEST(KernelSymbols, RestrictedAddressesAreNoticed) {
  FakeRoot root;
  std::string table;
  for (int i = 0; i < 1000; ++i) table += "0000000000000000 T function" + std::to_string(i) + "\n";
  root.Write("/proc/kallsyms", table);
  LiveSymbolizer symbolizer(Options(root));
  const Resolved resolved = symbolizer.Resolve(KernelMapping(), {0xffffffff81000125});
  EXPECT_TRUE(resolved.functions.empty());
  EXPECT_THAT(resolved.problem, HasSubstr("kptr_restrict"));
  // Once they can be read, they are.
  root.Write("/proc/kallsyms", KernelTable());
  EXPECT_EQ(NameAt(symbolizer.Resolve(KernelMapping(), {0xffffffff81000125}), 0xffffffff81000125),
            "startup_64");
}

TEST(KernelSymbols, SavedTablesMayBeCompressed) {
  FakeRoot root;
  for (const std::string& bytes : {KernelTable(), Xz(KernelTable()), Gzip(KernelTable())}) {
    LiveSymbolizerOptions options = Options(root);
    options.live = false;
    options.kallsyms_path = root.Write("/saved", bytes);
    LiveSymbolizer symbolizer(options);
    EXPECT_EQ(NameAt(symbolizer.Resolve(KernelMapping(), {0xffffffff81000125}), 0xffffffff81000125),
              "startup_64");
  }
  LiveSymbolizerOptions options = Options(root);
  options.kallsyms_path = root.Write("/saved", Xz(KernelTable()).substr(0, 900));
  LiveSymbolizer symbolizer(options);
  const Resolved resolved = symbolizer.Resolve(KernelMapping(), {0xffffffff81000125});
  EXPECT_TRUE(resolved.functions.empty());
  EXPECT_THAT(resolved.problem, HasSubstr("damaged xz"));
}

std::string Note(const std::string& id) {
  std::string note("\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0", 16);
  return note + id;
}

TEST(KernelSymbols, AnotherKernelsSamplesGetNoNamesFromThisOne) {
  FakeRoot root;
  root.Write("/proc/kallsyms", KernelTable());
  root.Write("/sys/kernel/notes", Note(std::string(20, 'a')));
  LiveSymbolizerOptions options = Options(root);
  options.live = false;
  LiveSymbolizer symbolizer(options);

  MappingInfo mapping = KernelMapping();
  EXPECT_THAT(symbolizer.Resolve(mapping, {0xffffffff81000125}).problem, HasSubstr("--kallsyms"));
  mapping.build_id = std::string(20, 'b');
  Resolved resolved = symbolizer.Resolve(mapping, {0xffffffff81000125});
  EXPECT_TRUE(resolved.functions.empty());
  EXPECT_THAT(resolved.problem, HasSubstr("build id 6262"));

  mapping.build_id = std::string(20, 'a');
  resolved = symbolizer.Resolve(mapping, {0xffffffff81000125});
  EXPECT_EQ(NameAt(resolved, 0xffffffff81000125), "startup_64");
  EXPECT_THAT(resolved.problem, HasSubstr("KASLR")) << "the same kernel, but perhaps another boot";
  mapping.start = 0xffffffff81000000;
  EXPECT_EQ(symbolizer.Resolve(mapping, {0xffffffff81000125}).problem, "")
      << "its text lies where this boot has it";
}

}  // namespace
}  // namespace xenprof::symbols
