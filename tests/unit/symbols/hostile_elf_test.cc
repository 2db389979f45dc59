// Files that lie: whatever is in them, reading ends in bounded time with an answer or an error.
#include <fcntl.h>
#include <unistd.h>

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/symbols/sample_file.h"
#include "tests/unit/symbols/test_support.h"
#include "xenprof/symbols/dwarf_index.h"
#include "xenprof/symbols/elf_file.h"
#include "xenprof/symbols/elf_names.h"

namespace xenprof::symbols {
namespace {

// As strip leaves it, but for the tables' bytes.
std::string WithoutSymbols(std::string bytes) {
  const uint64_t sections_at = *reinterpret_cast<const uint64_t*>(bytes.data() + 0x28);
  for (size_t at = sections_at; at + sizeof(Elf64_Shdr) <= bytes.size(); at += sizeof(Elf64_Shdr)) {
    auto* section = reinterpret_cast<Elf64_Shdr*>(bytes.data() + at);
    if (section->sh_type == SHT_SYMTAB || section->sh_type == SHT_DYNSYM) section->sh_type = SHT_PROGBITS;
  }
  return bytes;
}

// Everything we do with a file. `dwarf` too, which is the slow part.
void ReadAllOf(const std::string& bytes, bool dwarf) {
  const absl::StatusOr<std::shared_ptr<const ElfFile>> file =
      ElfFile::Open(MemoryByteSource(bytes), "hostile");
  if (!file.ok()) {
    EXPECT_FALSE(file.status().message().empty());
    return;
  }
  std::vector<uint64_t> addresses;
  for (uint64_t offset = 0; offset < 0x6000; offset += 0x40) {
    if (const auto address = (*file)->AddressOfOffset(offset)) addresses.push_back(*address);
  }
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  const ElfNames names = FindElfNames(*file, nullptr, addresses, 4 << 20);
  for (size_t i = 0; i < addresses.size(); ++i) {
    const FunctionCache::Found* found = names.At(i);
    if (found == nullptr) continue;
    EXPECT_LE(found->start, addresses[i]);
    EXPECT_GT(found->end, addresses[i]);
  }
  if (!dwarf) return;
  const absl::StatusOr<std::unique_ptr<DwarfIndex>> index = DwarfIndex::Build(**file);
  if (index.ok()) (*index)->Find(addresses);
}

TEST(HostileElf, TruncatedAnywhere) {
  const std::string whole = ReadFile(SamplePath("dwarf4"));
  for (size_t size = 0; size < whole.size(); size += size < 4096 ? 7 : 331)
    ReadAllOf(whole.substr(0, size), true);
}

TEST(HostileElf, EveryBitOfTheHeadersFlipped) {
  const std::string whole = ReadFile(SamplePath("plain"));
  const size_t headers = 64 + 12 * 56;  // the ELF header and the program headers
  for (size_t bit = 0; bit < headers * 8; ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] ^= 1 << bit % 8;
    ReadAllOf(bytes, false);
  }
  // The section headers are at the end.
  const uint64_t sections_at = *reinterpret_cast<const uint64_t*>(whole.data() + 0x28);
  for (size_t byte = sections_at; byte < whole.size(); ++byte) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string bytes = whole;
      bytes[byte] ^= flip;
      ReadAllOf(bytes, false);
    }
  }
}

TEST(HostileElf, BytesOfDebugSectionsFlipped) {
  std::mt19937 random(7);
  for (const char* variant : {"dwarf3", "dwarf4", "dwarf5", "packed"}) {
    const std::string whole = ReadFile(SamplePath(variant));
    const std::shared_ptr<const ElfFile> file = OpenElfBytes(whole);
    for (const ElfFile::Section& section : file->sections()) {
      if (section.name.substr(0, 7) != ".debug_" || section.size == 0) continue;
      for (int i = 0; i < 150; ++i) {
        std::string bytes = whole;
        for (int flips = 1 + random() % 3; flips > 0; --flips) {
          bytes[section.offset + random() % section.size] = static_cast<char>(random());
        }
        ReadAllOf(bytes, true);
      }
    }
  }
}

TEST(HostileElf, EveryByteOfUnwindTablesChanged) {
  const std::string whole = WithoutSymbols(ReadFile(SamplePath("plain")));
  const std::shared_ptr<const ElfFile> file = OpenElfBytes(whole);
  for (const char* name : {".eh_frame_hdr", ".eh_frame"}) {
    const ElfFile::Section* section = file->FindSection(name);
    ASSERT_NE(section, nullptr);
    for (uint64_t at = section->offset; at < section->offset + section->size; ++at) {
      for (const unsigned char byte : {0x00, 0x01, 0x04, 0x09, 0x1b, 0x3b, 0x7f, 0x80, 0xff}) {
        std::string bytes = whole;
        bytes[at] = static_cast<char>(byte);
        ReadAllOf(bytes, false);
      }
      // A count, a length or a way back that leads far outside.
      for (const uint32_t word : {0u, 4u, 0x7fffffffu, 0x80000000u, 0xfffffffeu, 0xffffffffu}) {
        std::string bytes = whole;
        bytes.replace(at, 4, reinterpret_cast<const char*>(&word), 4);
        ReadAllOf(bytes, false);
      }
    }
  }
}

TEST(HostileElf, RandomBytesAnywhere) {
  std::mt19937 random(8);
  const std::string whole = ReadFile(SamplePath("plain"));
  for (int i = 0; i < 400; ++i) {
    std::string bytes = whole;
    for (int flips = 0; flips < 40; ++flips) bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.replace(0, 20, whole, 0, 20);
    ReadAllOf(bytes, true);
  }
}

TEST(HostileElf, AFileThatShrinksWhileItIsReadIsAnError) {
  FakeRoot root;
  const std::string path = root.Write("/shrinks", ReadFile(SamplePath("dwarf4")));
  absl::StatusOr<std::shared_ptr<const ByteSource>> source =
      FileByteSource(UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC)), path);
  ASSERT_TRUE(source.ok()) << source.status();
  const absl::StatusOr<std::shared_ptr<const ElfFile>> file = ElfFile::Open(*source, path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(truncate(path.c_str(), 4096), 0);
  const ElfNames names = FindElfNames(*file, nullptr, {0x1100, 0x1140}, 4 << 20);
  EXPECT_THAT(names.problem, ::testing::HasSubstr("ends early"));
  EXPECT_FALSE(DwarfIndex::Build(**file).ok());
}

TEST(HostileElf, CompressedSectionsMayNotExplode) {
  const std::string whole = ReadFile(SamplePath("packed"));
  const std::shared_ptr<const ElfFile> file = OpenElfBytes(whole);
  const ElfFile::Section* section = file->FindSection(".debug_info");
  ASSERT_NE(section, nullptr);
  if ((section->flags & SHF_COMPRESSED) == 0) GTEST_SKIP() << "this linker does not compress debug sections";
  EXPECT_TRUE(file->ReadSection(*section, 1 << 20).ok());
  std::string bytes = whole;
  const uint64_t size = uint64_t{1} << 40;
  bytes.replace(section->offset + 8, 8, reinterpret_cast<const char*>(&size), 8);  // ch_size
  const absl::StatusOr<std::string> read = OpenElfBytes(bytes)->ReadSection(*section, 1 << 20);
  EXPECT_THAT(std::string(read.status().message()), ::testing::HasSubstr("more than the 1048576 allowed"));
}

}  // namespace
}  // namespace xenprof::symbols
