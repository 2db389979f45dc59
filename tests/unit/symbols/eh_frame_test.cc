// Bounds of functions that have no symbols, against another reader of the same tables.
#include "xenprof/symbols/eh_frame.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/symbols/sample_file.h"
#include "tests/unit/symbols/test_support.h"
#include "xenprof/symbols/live_symbolizer.h"

namespace xenprof::symbols {
namespace {

using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;

// Of the FDEs in `path`, as readelf prints them, ascending.
Ranges RangesOfReadelf(const std::string& path) {
  Ranges ranges;
  const std::string output = OutputOf(absl::StrCat("readelf -wf ", path, " 2>/dev/null | grep ' FDE '"));
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    const size_t at = line.find(" pc=");
    unsigned long long start = 0, end = 0;
    if (at == absl::string_view::npos) continue;
    EXPECT_EQ(std::sscanf(std::string(line.substr(at)).c_str(), " pc=%llx..%llx", &start, &end), 2) << line;
    if (start < end) ranges.emplace_back(start, end);
  }
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

std::shared_ptr<const ElfFile> OpenElf(const std::string& path) { return OpenElfBytes(ReadFile(path)); }

void ExpectSameRanges(const std::string& path) {
  const Ranges ranges = RangesOfReadelf(path);
  ASSERT_FALSE(ranges.empty()) << path;
  std::vector<uint64_t> addresses;
  Ranges expected;
  const auto ask = [&](uint64_t address, std::pair<uint64_t, uint64_t> range) {
    if (!addresses.empty() && addresses.back() >= address) return;
    addresses.push_back(address);
    expected.push_back(range);
  };
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto [start, end] = ranges[i];
    if (i > 0 && start < ranges[i - 1].second) FAIL() << path << ": overlapping functions";
    ask(start, ranges[i]);
    ask(start + (end - start) / 2, ranges[i]);
    ask(end - 1, ranges[i]);
    if (i + 1 == ranges.size() || end < ranges[i + 1].first) ask(end, {0, 0});
  }
  const std::shared_ptr<const ElfFile> file = OpenElf(path);
  const auto found = FindEhFrameFunctions(*file, addresses);
  ASSERT_EQ(found.size(), addresses.size());
  size_t different = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    different += std::pair(found[i].start, found[i].end) != expected[i];
    // Each on its own, without what the ones before it left.
    if (i % 997 != 0) continue;
    EXPECT_EQ(FindEhFrameFunctions(*file, {addresses[i]})[0].end, expected[i].second);
  }
  EXPECT_EQ(different, 0u) << path << ", of " << found.size();
}

bool HasReadelf() { return !OutputOf("readelf --version").empty(); }

TEST(EhFrame, BoundsAreThoseReadelfPrints) {
  if (!HasReadelf()) GTEST_SKIP() << "no readelf here";
  ExpectSameRanges(SamplePath("plain"));
  for (const char* path : {"/usr/bin/bash", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"}) {
    if (std::filesystem::exists(path)) ExpectSameRanges(path);
  }
}

TEST(EhFrame, OfThisProgramStripped) {
  std::string bytes;
  if (!HasReadelf() || !Objcopy(ReadFile("/proc/self/exe"), {"--strip-all"}, &bytes)) {
    GTEST_SKIP() << "no binutils here";
  }
  FakeRoot folder;
  ExpectSameRanges(folder.Write("/stripped", bytes));
}

// What is remembered of functions without a name must not hide a name that is asked for later.
void ExpectNamesToWin(const std::string& path) {
  const std::shared_ptr<const ElfFile> file = OpenElf(path);
  const ElfFile::Section* text = file->FindSection(".text");
  ASSERT_NE(text, nullptr);
  std::vector<uint64_t> all, few;
  for (uint64_t offset = text->offset; offset < text->offset + text->size; offset += 24)
    all.push_back(offset);
  const MappingInfo mapping = FileMapping(path, file->build_id());
  LiveSymbolizerOptions options;
  options.debug_dirs.clear();  // nobody's debug file
  LiveSymbolizer at_once(options), in_parts(options);
  const Resolved expected = at_once.Resolve(mapping, all);
  size_t nameless = 0;
  uint64_t end = 0;
  for (const Function& function : expected.functions) {
    EXPECT_GE(function.start, end);
    EXPECT_GT(function.size, 0u);
    end = function.start + function.size;
    if (!function.name.empty()) continue;
    ++nameless;
    few.push_back(*std::lower_bound(all.begin(), all.end(), function.start));
  }
  EXPECT_GT(nameless, 100u) << path;

  in_parts.Resolve(mapping, few);
  const Resolved later = in_parts.Resolve(mapping, all);
  ASSERT_EQ(later.functions.size(), expected.functions.size()) << path;
  for (size_t i = 0; i < later.functions.size(); ++i) {
    EXPECT_EQ(later.functions[i].start, expected.functions[i].start);
    EXPECT_EQ(later.functions[i].size, expected.functions[i].size);
    EXPECT_EQ(later.functions[i].name, expected.functions[i].name);
  }
}

TEST(EhFrame, NamesWinInWhateverOrderTheyAreAskedFor) {
  for (const char* path : {"/usr/bin/bash", "/usr/lib/x86_64-linux-gnu/libc.so.6"}) {
    if (std::filesystem::exists(path)) ExpectNamesToWin(path);
  }
}

TEST(EhFrame, ASymbolInsideOfAnFdeKeepsWhatIsItsOwn) {
  std::string bytes;
  if (!Objcopy(ReadFile(SamplePath("plain")), {"--strip-all"}, &bytes)) GTEST_SKIP() << "no objcopy here";
  const std::shared_ptr<const ElfFile> file = OpenElfBytes(bytes);
  const uint64_t plain = SampleOffset("plain", "plain");
  const ElfFile::Section* symbols = file->FindSectionOfType(SHT_DYNSYM);
  uint64_t whole = 0;
  for (uint64_t at = symbols->offset; at < symbols->offset + symbols->size; at += sizeof(Elf64_Sym)) {
    auto* symbol = reinterpret_cast<Elf64_Sym*>(bytes.data() + at);
    if (file->OffsetOfAddress(symbol->st_value) != plain) continue;
    whole = symbol->st_size;
    symbol->st_value += 4;
    symbol->st_size = 2;
  }
  ASSERT_GT(whole, 6u);
  FakeRoot root;
  root.Write("/lib/sample.so", bytes);
  LiveSymbolizer symbolizer(Options(root));
  const MappingInfo mapping = FileMapping("/lib/sample.so", BuildIdOf(bytes));
  for (const uint64_t around : {plain + 6, plain}) symbolizer.Resolve(mapping, {around});
  const Resolved resolved = symbolizer.Resolve(mapping, {plain, plain + 4, plain + 6});
  std::vector<std::tuple<uint64_t, uint64_t, std::string>> functions;
  for (const Function& function : resolved.functions) {
    functions.emplace_back(function.start, function.size, function.name);
  }
  EXPECT_THAT(functions,
              ::testing::ElementsAre(std::tuple(plain, 4, ""), std::tuple(plain + 4, 2, "sample_plain"),
                                     std::tuple(plain + 6, whole - 6, "")));
}

TEST(EhFrame, IsReadOnce) {
  FakeRoot root;
  std::string bytes;
  if (!Objcopy(ReadFile(SamplePath("plain")), {"--strip-all"}, &bytes)) GTEST_SKIP() << "no objcopy here";
  const std::string path = root.Write("/lib/sample.so", bytes);
  const MappingInfo mapping = FileMapping("/lib/sample.so", BuildIdOf(bytes));
  const uint64_t hidden = SampleOffset("plain", "hidden");
  LiveSymbolizer symbolizer(Options(root));
  Resolved resolved = symbolizer.Resolve(mapping, {hidden});
  ASSERT_EQ(resolved.functions.size(), 1u);
  ASSERT_EQ(unlink(path.c_str()), 0);
  // Another address of the same function.
  resolved = symbolizer.Resolve(mapping, {hidden + 1});
  ASSERT_EQ(resolved.functions.size(), 1u);
  EXPECT_EQ(resolved.functions[0].start, hidden);
  EXPECT_EQ(resolved.functions[0].name, "");
  EXPECT_EQ(resolved.source, "") << "no name came from anywhere";
  EXPECT_EQ(resolved.problem, "1 of 1 addresses have no name in " + root.path() + "/lib/sample.so .dynsym");
}

}  // namespace
}  // namespace xenprof::symbols
