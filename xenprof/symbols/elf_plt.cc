#include "xenprof/symbols/elf_plt.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "xenprof/symbols/demangle.h"

namespace xenprof::symbols {
namespace {

constexpr uint64_t kStubBytes = 16;
constexpr uint64_t kShortStubBytes = 8;  // of .plt.got
constexpr uint64_t kRelasPerBlock = 2048;
constexpr uint64_t kMaxRelas = 1 << 20;

uint32_t Read32(const unsigned char* at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

struct Stub {
  uint64_t start = 0, size = 0;
  std::optional<uint64_t> slot;    // address in the global offset table
  std::optional<uint32_t> number;  // of the relocation in .rela.plt
};

Stub Decode(const ElfFile& file, const ElfFile::Section& section, uint64_t address) {
  Stub stub;
  stub.size = section.entry_size == kShortStubBytes ? kShortStubBytes : kStubBytes;
  stub.start = section.address + (address - section.address) / stub.size * stub.size;
  unsigned char code[kStubBytes] = {};
  const uint64_t in_section = stub.start - section.address;
  if (section.type == SHT_NOBITS || in_section + stub.size > section.size ||
      !file.source()->ReadExactly(section.offset + in_section, code, stub.size)) {
    return stub;
  }
  size_t at = 0;
  if (std::memcmp(code, "\xf3\x0f\x1e\xfa", 4) == 0) at = 4;  // endbr64
  if (code[at] == 0xf2) ++at;                                 // bnd
  if (code[at] == 0xff && code[at + 1] == 0x25 && at + 6 <= stub.size) {
    const int32_t displacement = static_cast<int32_t>(Read32(code + at + 2));
    stub.slot = stub.start + at + 6 + static_cast<int64_t>(displacement);
  } else if (code[at] == 0x68 && at + 5 <= stub.size) {  // push imm32
    stub.number = Read32(code + at + 1);
  }
  return stub;
}

}  // namespace

std::vector<FunctionCache::Found> FindPltStubs(const ElfFile& file, absl::Span<const uint64_t> addresses) {
  std::vector<FunctionCache::Found> found(addresses.size());
  if (addresses.empty() || !file.is_64() || file.machine() != EM_X86_64) return found;
  const ElfFile::Section* symbols = file.FindSectionOfType(SHT_DYNSYM);
  if (symbols == nullptr) return found;

  std::vector<Stub> stubs;
  absl::flat_hash_map<uint64_t, std::string> slot_names;
  absl::flat_hash_map<uint32_t, std::string> number_names;
  for (uint64_t address : addresses) {
    const ElfFile::Section* section = file.SectionAt(address);
    stubs.push_back(section == nullptr ? Stub{} : Decode(file, *section, address));
    if (stubs.back().slot) slot_names[*stubs.back().slot];
    if (stubs.back().number) number_names[*stubs.back().number];
  }

  std::vector<Elf64_Rela> block(kRelasPerBlock);
  uint64_t budget = kMaxRelas;
  for (const ElfFile::Section& section : file.sections()) {
    if (section.type != SHT_RELA || (section.flags & SHF_ALLOC) == 0) continue;
    const bool of_plt = section.name == ".rela.plt";
    const uint64_t count = std::min(section.size / sizeof(Elf64_Rela), budget);
    budget -= count;
    for (uint64_t done = 0; done < count;) {
      const size_t want = std::min<uint64_t>(kRelasPerBlock, count - done) * sizeof(Elf64_Rela);
      const size_t got =
          file.source()->ReadAt(section.offset + done * sizeof(Elf64_Rela), block.data(), want) /
          sizeof(Elf64_Rela);
      if (got == 0) break;
      for (size_t i = 0; i < got; ++i) {
        const auto slot = slot_names.find(block[i].r_offset);
        const auto number = of_plt ? number_names.find(done + i) : number_names.end();
        if (slot == slot_names.end() && number == number_names.end()) continue;
        const std::optional<ElfFile::Symbol> symbol = file.SymbolAt(*symbols, ELF64_R_SYM(block[i].r_info));
        if (!symbol || symbol->name == 0) continue;
        std::string name = file.StringOf(*symbols, symbol->name);
        name.resize(std::min(name.find('@'), name.size()));
        if (slot != slot_names.end()) slot->second = name;
        if (number != number_names.end()) number->second = name;
      }
      done += got;
    }
  }
  for (size_t i = 0; i < stubs.size(); ++i) {
    std::string name;
    if (stubs[i].slot) {
      name = slot_names[*stubs[i].slot];
    } else if (stubs[i].number) {
      name = number_names[*stubs[i].number];
    }
    if (name.empty()) continue;
    found[i] = {.start = stubs[i].start,
                .end = stubs[i].start + stubs[i].size,
                .name = absl::StrCat(Demangle(name), "@plt")};
  }
  return found;
}

}  // namespace xenprof::symbols
