// Names out of real libraries: every table they can come from.
#include "xenprof/symbols/user_symbols.h"

#include <dlfcn.h>
#include <sys/auxv.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/symbols/sample_file.h"
#include "tests/unit/symbols/test_support.h"
#include "xenprof/symbols/elf_names.h"
#include "xenprof/symbols/live_symbolizer.h"

namespace xenprof::symbols {
namespace {

using ::testing::HasSubstr;

std::string DebugPath(const std::string& build_id) {
  const std::string hex = absl::BytesToHexString(build_id);
  return "/usr/lib/debug/.build-id/" + hex.substr(0, 2) + "/" + hex.substr(2) + ".debug";
}

// The sample at /lib/sample.so of a fake root; asks for all five functions.
struct Asked {
  uint64_t hidden, plain, exported, chosen, sizeless;
  explicit Asked(const std::string& variant)
      : hidden(SampleOffset(variant, "hidden")),
        plain(SampleOffset(variant, "plain")),
        exported(SampleOffset(variant, "exported")),
        chosen(SampleOffset(variant, "chosen")),
        sizeless(SampleOffset(variant, "sizeless")) {}
  std::vector<uint64_t> all() const {
    std::vector<uint64_t> offsets = {hidden, plain, exported, chosen, sizeless + 1};
    std::sort(offsets.begin(), offsets.end());
    return offsets;
  }
};

TEST(UserSymbols, ComeFromSymtab) {
  FakeRoot root;
  const std::string bytes = ReadFile(SamplePath("plain"));
  root.Write("/lib/sample.so", bytes);
  LiveSymbolizer symbolizer(Options(root));
  const Asked asked("plain");
  const Resolved resolved = symbolizer.Resolve(FileMapping("/lib/sample.so", BuildIdOf(bytes)), asked.all());
  EXPECT_EQ(NameAt(resolved, asked.hidden), kHidden);
  EXPECT_EQ(NameAt(resolved, asked.plain), "sample_plain");
  EXPECT_EQ(NameAt(resolved, asked.exported), "int sample::Exported<int>(int)");
  EXPECT_EQ(NameAt(resolved, asked.chosen), "(anonymous namespace)::ChosenHere(int)");
  EXPECT_EQ(NameAt(resolved, asked.sizeless + 3), "sample_sizeless") << "a function without a size";
  EXPECT_EQ(resolved.problem, "");
  EXPECT_THAT(resolved.source, HasSubstr(".symtab"));
  EXPECT_TRUE(std::is_sorted(resolved.functions.begin(), resolved.functions.end(),
                             [](const Function& a, const Function& b) { return a.start < b.start; }));
}

TEST(UserSymbols, StrippedLibrariesNameWhatTheyExport) {
  FakeRoot root;
  std::string bytes;
  if (!Objcopy(ReadFile(SamplePath("plain")), {"--strip-all"}, &bytes)) GTEST_SKIP() << "no objcopy here";
  root.Write("/lib/sample.so", bytes);
  LiveSymbolizer symbolizer(Options(root));
  const Asked asked("plain");
  const Resolved resolved = symbolizer.Resolve(FileMapping("/lib/sample.so", BuildIdOf(bytes)), asked.all());
  EXPECT_EQ(NameAt(resolved, asked.plain), "sample_plain");
  EXPECT_EQ(NameAt(resolved, asked.exported), "int sample::Exported<int>(int)");
  EXPECT_EQ(NameAt(resolved, asked.hidden), "") << "and nothing else";
  EXPECT_THAT(resolved.functions,
              ::testing::Contains(::testing::AllOf(::testing::Field(&Function::start, asked.hidden),
                                                   ::testing::Field(&Function::name, ""))));
  EXPECT_THAT(resolved.source, HasSubstr(".dynsym"));
  EXPECT_THAT(resolved.problem, HasSubstr("of 5 addresses have no name"));
}

TEST(UserSymbols, ComeFromMiniDebugInfo) {
  FakeRoot root;
  std::string bytes;
  if (!WithMiniDebugInfo(ReadFile(SamplePath("plain")), &bytes)) GTEST_SKIP() << "no objcopy here";
  root.Write("/lib/sample.so", bytes);
  LiveSymbolizer symbolizer(Options(root));
  const Asked asked("plain");
  const Resolved resolved = symbolizer.Resolve(FileMapping("/lib/sample.so", BuildIdOf(bytes)), asked.all());
  EXPECT_EQ(NameAt(resolved, asked.hidden), kHidden);
  EXPECT_EQ(NameAt(resolved, asked.plain), "sample_plain");
  EXPECT_EQ(resolved.problem, "");
  EXPECT_THAT(resolved.source, HasSubstr(".dynsym and .gnu_debugdata"));
}

TEST(UserSymbols, MiniDebugInfoThatExplodesIsGivenUp) {
  std::string bytes;
  if (!Objcopy(ReadFile(SamplePath("plain")), {"--strip-all", "--add-section", ".gnu_debugdata={}/bomb.xz"},
               &bytes, {{"bomb.xz", Xz(std::string(40 << 20, '\0'))}})) {
    GTEST_SKIP() << "no objcopy here";
  }
  ASSERT_LT(bytes.size(), size_t{1} << 20);
  const ElfNames names = FindElfNames(OpenElfBytes(bytes), nullptr, {0x1000}, 1 << 20);
  EXPECT_THAT(names.problem, HasSubstr(".gnu_debugdata: larger than the limit"));
}

TEST(UserSymbols, ComeFromADebugFileByBuildId) {
  FakeRoot root;
  const std::string whole = ReadFile(SamplePath("dwarf4"));
  std::string stripped, debug;
  if (!Objcopy(whole, {"--strip-all"}, &stripped) || !Objcopy(whole, {"--only-keep-debug"}, &debug)) {
    GTEST_SKIP() << "no objcopy here";
  }
  root.Write("/lib/sample.so", stripped);
  const std::string id = BuildIdOf(whole);
  root.Write(DebugPath(id), debug);
  const Asked asked("dwarf4");
  LiveSymbolizer symbolizer(Options(root));
  Resolved resolved = symbolizer.Resolve(FileMapping("/lib/sample.so", id), asked.all());
  EXPECT_EQ(NameAt(resolved, asked.hidden), kHidden);
  EXPECT_THAT(resolved.source, HasSubstr(".debug"));

  // Without the program, a debug file of objcopy's has lost the file offsets that mappings speak of.
  FakeRoot without;
  without.Write(DebugPath(id), debug);
  LiveSymbolizer other(Options(without));
  resolved = other.Resolve(FileMapping("/lib/sample.so", id), asked.all());
  EXPECT_TRUE(resolved.functions.empty());
  EXPECT_THAT(resolved.problem, HasSubstr("does not tell where in the file its code was"));

  // One that kept its segments (eu-strip) will do alone.
  std::string kept = debug;
  const uint64_t headers_at = *reinterpret_cast<const uint64_t*>(whole.data() + 0x20);
  const uint16_t headers = *reinterpret_cast<const uint16_t*>(whole.data() + 0x38);
  ASSERT_EQ(*reinterpret_cast<const uint16_t*>(debug.data() + 0x38), headers);
  kept.replace(headers_at, headers * 56, whole, headers_at, headers * 56);
  without.Write(DebugPath(id), kept);
  resolved = other.Resolve(FileMapping("/lib/sample.so", id), asked.all());
  EXPECT_EQ(NameAt(resolved, asked.hidden), kHidden);
  EXPECT_EQ(NameAt(resolved, asked.sizeless), "sample_sizeless");
}

TEST(UserSymbols, ComeFromADebugLinkWithTheRightChecksum) {
  const std::string whole = ReadFile(SamplePath("no_id"));
  std::string debug, linked;
  if (!Objcopy(whole, {"--only-keep-debug"}, &debug) ||
      !Objcopy(whole, {"--strip-all", "--add-gnu-debuglink={}/sample.debug"}, &linked,
               {{"sample.debug", debug}})) {
    GTEST_SKIP() << "no objcopy here";
  }
  const Asked asked("no_id");
  for (const char* place :
       {"/lib/sample.debug", "/lib/.debug/sample.debug", "/usr/lib/debug/lib/sample.debug"}) {
    FakeRoot root;
    root.Write("/lib/sample.so", linked);
    root.Write(place, debug);
    LiveSymbolizer symbolizer(Options(root));
    EXPECT_EQ(NameAt(symbolizer.Resolve(FileMapping("/lib/sample.so"), asked.all()), asked.hidden), kHidden)
        << place;
  }
  FakeRoot root;
  root.Write("/lib/sample.so", linked);
  debug.back() ^= 1;
  root.Write("/lib/sample.debug", debug);
  LiveSymbolizer symbolizer(Options(root));
  const Resolved resolved = symbolizer.Resolve(FileMapping("/lib/sample.so"), asked.all());
  EXPECT_EQ(NameAt(resolved, asked.hidden), "");
  EXPECT_THAT(resolved.problem, HasSubstr("has not the checksum"));
}

TEST(UserSymbols, AReplacedFileIsNotUsed) {
  FakeRoot root;
  root.Write("/lib/sample.so", ReadFile(SamplePath("plain")));
  LiveSymbolizer symbolizer(Options(root));
  const Resolved resolved = symbolizer.Resolve(FileMapping("/lib/sample.so", std::string(20, 'q')), {0x1100});
  EXPECT_TRUE(resolved.functions.empty());
  EXPECT_THAT(resolved.problem, HasSubstr("the file was replaced"));
}

TEST(UserSymbols, NothingIsReadForWhatIsKnown) {
  FakeRoot root;
  const std::string bytes = ReadFile(SamplePath("plain"));
  const std::string path = root.Write("/lib/sample.so", bytes);
  LiveSymbolizer symbolizer(Options(root));
  const Asked asked("plain");
  symbolizer.Resolve(FileMapping("/lib/sample.so", BuildIdOf(bytes)), asked.all());
  ASSERT_EQ(unlink(path.c_str()), 0);
  const Resolved resolved =
      symbolizer.Resolve(FileMapping("/lib/sample.so", BuildIdOf(bytes)), {asked.hidden});
  EXPECT_EQ(NameAt(resolved, asked.hidden), kHidden);
  EXPECT_EQ(resolved.problem, "");
}

TEST(UserSymbols, WithoutBuildIdNamesBelongToTheFileAsItIs) {
  FakeRoot root;
  const std::string path = root.Write("/lib/sample.so", ReadFile(SamplePath("no_id")));
  LiveSymbolizer symbolizer(Options(root));
  const Asked asked("no_id");
  EXPECT_EQ(NameAt(symbolizer.Resolve(FileMapping("/lib/sample.so"), {asked.hidden}), asked.hidden), kHidden);
  ASSERT_EQ(unlink(path.c_str()), 0);
  root.Write("/lib/sample.so", "something else");
  const Resolved resolved = symbolizer.Resolve(FileMapping("/lib/sample.so"), {asked.hidden});
  EXPECT_TRUE(resolved.functions.empty());
  EXPECT_THAT(resolved.problem, HasSubstr("not an ELF file"));
}

TEST(UserSymbols, TheCacheHasABound) {
  FakeRoot root;
  UserSymbolsOptions options;
  options.root = root.path();
  options.max_cached_bytes = 4096;
  UserSymbols symbols(options);
  const Asked asked("no_id");
  for (int i = 0; i < 50; ++i) {
    const std::string path = "/lib/" + std::to_string(i);
    root.Write(path, ReadFile(SamplePath("no_id")));
    const Resolved resolved = symbols.ResolveFile(FileMapping(path), asked.all());
    EXPECT_EQ(NameAt(resolved, asked.hidden), kHidden) << "whatever was thrown away";
    EXPECT_LE(symbols.cached_bytes(), 4096u);
  }
}

TEST(UserSymbols, StubsOfTheLinkageTableAreNamed) {
  const std::shared_ptr<const ElfFile> elf = OpenElfBytes(ReadFile(SamplePath("plain")));
  std::vector<uint64_t> addresses;
  for (const ElfFile::Section& section : elf->sections()) {
    if (section.name.substr(0, 4) != ".plt") continue;
    for (uint64_t at = section.address; at < section.address + section.size; at += 8) addresses.push_back(at);
  }
  ASSERT_FALSE(addresses.empty());
  const ElfNames names = FindElfNames(elf, nullptr, addresses, 0);
  std::vector<std::string> found;
  for (const auto& function : names.functions) found.push_back(function.name);
  EXPECT_THAT(found, ::testing::Contains("getpid@plt"));
  EXPECT_THAT(found, ::testing::Contains("strcmp@plt"));
  EXPECT_THAT(found, ::testing::Not(::testing::Contains(""))) << "what describes them all says nothing";
}

TEST(UserSymbols, VersionsAreCutOff) {
  // The C library itself: names like memcpy@@GLIBC_2.14 in its table.
  Dl_info info;
  void* function = dlsym(RTLD_DEFAULT, "getpid");
  ASSERT_NE(dladdr(function, &info), 0);
  LiveSymbolizer symbolizer({});
  const std::string bytes = ReadFile(info.dli_fname);
  const auto offset = OpenElfBytes(bytes)->OffsetOfAddress(reinterpret_cast<uint64_t>(function) -
                                                           reinterpret_cast<uint64_t>(info.dli_fbase));
  ASSERT_TRUE(offset.has_value());
  const Resolved resolved = symbolizer.Resolve(FileMapping(info.dli_fname, BuildIdOf(bytes)), {*offset});
  EXPECT_THAT(NameAt(resolved, *offset), ::testing::AnyOf("getpid", "__getpid"));
}

TEST(UserSymbols, TheVdsoOfThisKernelHasNames) {
  if (getauxval(AT_SYSINFO_EHDR) == 0) GTEST_SKIP() << "this kernel gives processes no vdso";
  LiveSymbolizer symbolizer({});
  MappingInfo mapping = FileMapping("[vdso]");
  std::vector<uint64_t> offsets;
  for (uint64_t offset = 0; offset < 8192; offset += 16) offsets.push_back(offset);
  Resolved resolved = symbolizer.Resolve(mapping, offsets);
  std::vector<std::string> names;
  for (const Function& function : resolved.functions) names.push_back(function.name);
  EXPECT_THAT(names, ::testing::Contains(HasSubstr("clock_gettime")));

  // The same at addresses of one process.
  ASSERT_FALSE(resolved.functions.empty());
  const Function first = resolved.functions[0];
  mapping.is_file = false;
  mapping.start = 0x7ffc00000000;
  mapping.end = mapping.start + 8192;
  resolved = symbolizer.Resolve(mapping, {mapping.start + first.start});
  EXPECT_EQ(NameAt(resolved, mapping.start + first.start), first.name);

  LiveSymbolizerOptions elsewhere;
  elsewhere.live = false;
  LiveSymbolizer import(elsewhere);
  EXPECT_THAT(import.Resolve(FileMapping("[vdso]"), offsets).problem, HasSubstr("does not run here"));
}

TEST(UserSymbols, OtherMappingsSayWhyTheyHaveNone) {
  LiveSymbolizer symbolizer({});
  MappingInfo mapping;
  mapping.kind = FrameKind::kGuestKernel;
  mapping.name = "[guest.kernel]";
  EXPECT_THAT(symbolizer.Resolve(mapping, {0xffffffff81000000}).problem, HasSubstr("guests"));
  mapping.kind = FrameKind::kDom0User;
  mapping.name = "[vsyscall]";
  EXPECT_THAT(symbolizer.Resolve(mapping, {0xffffffffff600000}).problem, HasSubstr("[vsyscall]"));
  EXPECT_THAT(symbolizer.Resolve(FileMapping("/no/such/file"), {1}).problem, HasSubstr("not to be found"));
}

}  // namespace
}  // namespace xenprof::symbols
