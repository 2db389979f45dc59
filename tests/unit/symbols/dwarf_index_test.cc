// Inline frames and lines: against addr2line, and indexes on disk against those who tamper with them.
#include "xenprof/symbols/dwarf_index.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <random>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/symbols/sample_file.h"
#include "tests/unit/symbols/test_support.h"
#include "xenprof/symbols/byte_stream.h"
#include "xenprof/symbols/live_symbolizer.h"

namespace xenprof::symbols {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<DwarfIndex> BuildIndex(const std::string& bytes) {
  absl::StatusOr<std::unique_ptr<DwarfIndex>> index = DwarfIndex::Build(*OpenElfBytes(bytes));
  EXPECT_TRUE(index.ok()) << index.status();
  return *std::move(index);
}

// "function file:line" per level, innermost first.
std::vector<std::string> LevelsAt(const DwarfIndex& index, uint64_t address) {
  std::vector<DwarfIndex::Level> levels;
  DwarfIndex::Position position;
  index.Find(address, &position, &levels);
  std::vector<std::string> text;
  for (const DwarfIndex::Level& level : levels) {
    const std::string file(level.file);
    text.push_back(absl::StrCat(level.function, " ", file.substr(file.rfind('/') + 1), ":",
                                level.line == 0 ? "?" : absl::StrCat(level.line)));
  }
  return text;
}

uint32_t Crc32Of(const std::string& bytes) {
  return crc32(crc32(0, nullptr, 0), reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
}

class DwarfIndexVariants : public ::testing::TestWithParam<const char*> {};

TEST_P(DwarfIndexVariants, AgreesWithAddr2lineOnEveryByteOfCode) {
  const std::string path = SamplePath(GetParam());
  const std::string bytes = ReadFile(path);
  const std::shared_ptr<const ElfFile> elf = OpenElfBytes(bytes);
  const std::unique_ptr<DwarfIndex> index = BuildIndex(bytes);
  const ElfFile::Section* text = elf->FindSection(".text");
  ASSERT_NE(text, nullptr);
  FakeRoot folder;
  std::string list;
  for (uint64_t i = 0; i < text->size; ++i) absl::StrAppend(&list, absl::Hex(text->address + i), "\n");
  const std::string output =
      OutputOf("addr2line -asfie " + path + " < " + folder.Write("/addresses", list) + " 2>/dev/null");
  if (output.empty()) GTEST_SKIP() << "no addr2line here";

  std::istringstream lines(output);
  uint64_t address = 0, compared = 0, with_inlines = 0, first_file = 0;
  std::vector<std::string> theirs;
  const auto compare = [&] {
    if (theirs.empty()) return;
    ++compared;
    with_inlines += theirs.size() > 1;
    std::vector<std::string> ours = LevelsAt(*index, address);
    if (ours.empty()) ours.push_back("?? ??:?");
    for (std::string& level : ours) {
      if (level[0] == ' ') level = "??" + level;
      const size_t no_file = level.find(" :");
      if (no_file != std::string::npos) level.insert(no_file + 1, "??");
    }
    if (ours != theirs && std::string(GetParam()) == "dwarf5") {
      // Binutils begin a sequence with file 0, the standard with file 1.
      ++first_file;
      return;
    }
    EXPECT_EQ(ours, theirs) << std::hex << address;
  };
  std::string line, function;
  for (bool is_function = true; std::getline(lines, line);) {
    if (line.substr(0, 2) == "0x") {
      compare();
      theirs.clear();
      address = std::stoull(line, nullptr, 16);
      is_function = true;
    } else if (is_function) {
      function = line;
      is_function = false;
    } else {
      theirs.push_back(function + " " + line.substr(0, line.find(" (discriminator")));
      is_function = true;
    }
  }
  compare();
  EXPECT_EQ(compared, text->size);
  EXPECT_GT(with_inlines, 20u);
  EXPECT_LT(first_file, compared / 4);
}

INSTANTIATE_TEST_SUITE_P(Versions, DwarfIndexVariants,
                         ::testing::Values("dwarf3", "dwarf4", "dwarf5", "packed"),
                         [](const auto& info) { return std::string(info.param); });

TEST(DwarfIndex, InlinedCallsComeInnermostFirst) {
  const std::string bytes = ReadFile(SamplePath("dwarf4"));
  const std::unique_ptr<DwarfIndex> index = BuildIndex(bytes);
  const std::shared_ptr<const ElfFile> elf = OpenElfBytes(bytes);
  const uint64_t exported = *elf->AddressOfOffset(SampleOffset("dwarf4", "exported"));
  std::vector<uint64_t> addresses;
  for (uint64_t i = 0; i < 512; ++i) addresses.push_back(exported + i);
  bool three_deep = false;
  for (const Lines& lines : index->Find(addresses)) {
    if (lines.entries.size() != 3 || lines.entries[2].function != "int sample::Exported<int>(int)") continue;
    three_deep = true;
    EXPECT_EQ(lines.entries[0].function, "sample::Deepest(int volatile*, int)");
    EXPECT_EQ(lines.entries[1].function, "sample::Deeper(int volatile*, int)");
    EXPECT_THAT(lines.entries[1].file, HasSubstr("sample/sample.h"));
    EXPECT_EQ(lines.entries[1].line, 14u);
    EXPECT_THAT(lines.entries[2].file, HasSubstr("sample/sample.cc"));
  }
  EXPECT_TRUE(three_deep);
}

TEST(DwarfIndex, AddressesInAnyOrderGetTheSameAnswers) {
  const std::string bytes = ReadFile(SamplePath("dwarf4"));
  const std::unique_ptr<DwarfIndex> index = BuildIndex(bytes);
  const ElfFile::Section* text = OpenElfBytes(bytes)->FindSection(".text");
  const uint64_t start = OpenElfBytes(bytes)->FindSection(".text")->address;
  ASSERT_NE(text, nullptr);
  std::mt19937 random(3);
  DwarfIndex::Position position;
  std::vector<DwarfIndex::Level> levels;
  for (int i = 0; i < 5000; ++i) {
    const uint64_t address = start - 16 + random() % 0x400;
    index->Find(address, &position, &levels);
    EXPECT_EQ(levels.size(), LevelsAt(*index, address).size()) << address;
  }
}

TEST(DwarfIndex, WithoutDwarfThereIsNone) {
  const auto index = DwarfIndex::Build(*OpenElfBytes(ReadFile(SamplePath("plain"))));
  EXPECT_EQ(index.status().code(), absl::StatusCode::kNotFound) << index.status();
}

TEST(DwarfIndexFile, IsKeptAndTakenAgain) {
  FakeRoot folder;
  const std::string bytes = ReadFile(SamplePath("dwarf5"));
  const std::shared_ptr<const ElfFile> elf = OpenElfBytes(bytes);
  bool from_folder = true;
  const auto built = OpenDwarfIndex(*elf, folder.path(), &from_folder);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_FALSE(from_folder);
  const auto kept = OpenDwarfIndex(*elf, folder.path(), &from_folder);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_TRUE(from_folder);
  EXPECT_EQ((*kept)->bytes(), (*built)->bytes());

  const std::string path = DwarfIndexPath(folder.path(), elf->build_id());
  struct stat status;
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_THAT(std::string(DwarfIndex::FromFile(path, std::string(20, 'x')).status().message()),
              HasSubstr("of another build"));
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_EQ(DwarfIndex::FromFile(path, elf->build_id()).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(DwarfIndexFile, DamageIsNoticedAndTheIndexBuiltAnew) {
  FakeRoot folder;
  const std::string bytes = ReadFile(SamplePath("dwarf5"));
  const std::shared_ptr<const ElfFile> elf = OpenElfBytes(bytes);
  const std::string good(BuildIndex(bytes)->bytes());
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    std::string bad = good;
    bad[random() % bad.size()] ^= 1 << random() % 8;
    EXPECT_FALSE(DwarfIndex::FromBytes(bad, elf->build_id()).ok());
  }
  for (size_t size = 0; size < good.size(); size += 97) {
    EXPECT_FALSE(DwarfIndex::FromBytes(good.substr(0, size), elf->build_id()).ok());
  }
  folder.Write(DwarfIndexPath("", elf->build_id()), good.substr(0, good.size() - 8));
  bool from_folder = true;
  const auto index = OpenDwarfIndex(*elf, folder.path(), &from_folder);
  ASSERT_TRUE(index.ok());
  EXPECT_FALSE(from_folder);
  EXPECT_EQ((*index)->bytes(), good);
}

TEST(DwarfIndexFile, NumbersOutOfRangeAreRefusedEvenWithTheRightChecksum) {
  const std::string bytes = ReadFile(SamplePath("dwarf5"));
  const std::shared_ptr<const ElfFile> elf = OpenElfBytes(bytes);
  const std::string good(BuildIndex(bytes)->bytes());
  std::mt19937 random(6);
  for (int i = 0; i < 2000; ++i) {
    std::string bad = good;
    const uint32_t number = random() % 3 == 0 ? 0xffffffff : static_cast<uint32_t>(random());
    const size_t at = 24 + random() % ((bad.size() - 24) / 4) * 4;  // after the checksum
    bad.replace(at, 4, reinterpret_cast<const char*>(&number), 4);
    const uint32_t crc = Crc32Of(bad.substr(16));
    bad.replace(12, 4, reinterpret_cast<const char*>(&crc), 4);
    const auto index = DwarfIndex::FromBytes(bad, elf->build_id());
    if (!index.ok()) continue;
    std::vector<uint64_t> addresses;
    for (uint64_t offset = 0; offset < 0x2000; offset += 8) addresses.push_back(offset);
    (*index)->Find(addresses);  // whatever it says, it stays inside
  }
}

// The lab's xen-syms lies beside the repository where there is one.
std::string LabElf() { return std::string(XENPROF_TEST_DATA) + "/../../../shared/xenlab/xen-syms.xz"; }

TEST(XenLines, ComeWithTheNamesWhenTheBuildIsTheRightOne) {
  if (access(LabElf().c_str(), R_OK) != 0)
    GTEST_SKIP() << "no xen-syms.xz of the Xen lab beside this repository";
  const std::string id = "\x8f\x13\x3d\xbb\xef\xb3\x0b\xe6\x30\x9f\x04\x30\xa5\x01\x9e\x38\x19\x51\xf1\xd6";
  constexpr uint64_t kInPageListDel = 0xffff82d0402206d4;
  FakeRoot root, indexes;
  const absl::StatusOr<std::unique_ptr<ByteStream>> lab = StreamOfFile(LabElf(), 1 << 30);
  ASSERT_TRUE(lab.ok()) << lab.status();
  const absl::StatusOr<std::string> elf = ReadAll(**lab);
  ASSERT_TRUE(elf.ok()) << elf.status();
  root.Write("/boot/xen-syms-4.17.5", *elf);
  LiveSymbolizerOptions options;
  options.root = root.path();
  options.index_dir = indexes.path();
  options.xen_build_id = id;
  for (int round = 0; round < 2; ++round) {
    LiveSymbolizer symbolizer(options);
    const Resolved resolved = symbolizer.Resolve(XenMapping(), {kInPageListDel});
    EXPECT_EQ(NameAt(resolved, kInPageListDel), "page_list_del");
    EXPECT_THAT(resolved.source, HasSubstr("/boot/xen-syms-4.17.5"));
    ASSERT_EQ(resolved.lines.size(), 1u) << resolved.problem;
    ASSERT_EQ(resolved.lines[0].entries.size(), 1u);
    EXPECT_EQ(resolved.lines[0].entries[0].function, "page_list_del");
    EXPECT_THAT(resolved.lines[0].entries[0].file, HasSubstr("include/xen/mm.h"));
    EXPECT_EQ(resolved.lines[0].entries[0].line, 330u);
    EXPECT_EQ(access(DwarfIndexPath(indexes.path(), id).c_str(), R_OK), 0);
  }
  options.xen_build_id = std::string(20, 'z');
  LiveSymbolizer other(options);
  const Resolved resolved = other.Resolve(XenMapping(), {kInPageListDel});
  EXPECT_TRUE(resolved.functions.empty());
  EXPECT_TRUE(resolved.lines.empty());
  EXPECT_THAT(resolved.problem, HasSubstr("is of another Xen"));
}

}  // namespace
}  // namespace xenprof::symbols
