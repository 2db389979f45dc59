#include "xenprof/symbols/elf_file.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "xenprof/base/types.h"
#include "xenprof/symbols/kernel_symbols.h"

namespace xenprof::symbols {
namespace {

// Far above what linkers write; a header that says more is lying.
constexpr uint64_t kMaxSections = 65536;
constexpr uint32_t kMaxSegments = 4096;
constexpr uint64_t kMaxSectionNamesBytes = 4 << 20;
constexpr uint64_t kMaxNotesBytes = 64 << 10;
constexpr size_t kMaxSymbolNameBytes = 8 << 10;
constexpr size_t kSymbolsPerBlock = 2048;

// Reads an Elf64_X or Elf32_X with the same fields and gives them to `take`.
template <typename T64, typename T32, typename Take>
bool ReadAs(const ByteSource& source, uint64_t offset, bool is_64, Take take) {
  if (is_64) {
    T64 raw;
    if (!source.ReadExactly(offset, &raw, sizeof(raw))) return false;
    take(raw);
  } else {
    T32 raw;
    if (!source.ReadExactly(offset, &raw, sizeof(raw))) return false;
    take(raw);
  }
  return true;
}

template <typename Raw>
ElfFile::Symbol SymbolOf(const Raw& raw) {
  return {.name = raw.st_name,
          .type = static_cast<uint8_t>(raw.st_info & 0xf),
          .binding = static_cast<uint8_t>(raw.st_info >> 4),
          .section = raw.st_shndx,
          .value = raw.st_value,
          .size = raw.st_size};
}

absl::StatusOr<std::string> Inflate(absl::string_view packed, uint64_t size, uint32_t type,
                                    const std::string& what) {
  std::string plain(size, '\0');
  if (type == ELFCOMPRESS_ZLIB) {
    uLongf got = size;
    if (uncompress(reinterpret_cast<Bytef*>(plain.data()), &got,
                   reinterpret_cast<const Bytef*>(packed.data()), packed.size()) != Z_OK ||
        got != size) {
      return absl::DataLossError(absl::StrCat(what, ": damaged zlib data"));
    }
  } else if (type == 2) {  // ELFCOMPRESS_ZSTD, not in every elf.h
    const size_t got = ZSTD_decompress(plain.data(), size, packed.data(), packed.size());
    if (ZSTD_isError(got) || got != size)
      return absl::DataLossError(absl::StrCat(what, ": damaged zstd data"));
  } else {
    return absl::UnimplementedError(absl::StrCat(what, ": compressed by an unknown method ", type));
  }
  return plain;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ElfFile>> ElfFile::Open(std::shared_ptr<const ByteSource> source,
                                                             std::string name) {
  std::shared_ptr<ElfFile> file(new ElfFile);
  file->source_ = std::move(source);
  file->name_ = std::move(name);
  const absl::Status status = file->ReadHeaders();
  if (!status.ok()) return status;
  file->FindBuildId();
  return std::shared_ptr<const ElfFile>(std::move(file));
}

absl::Status ElfFile::ReadHeaders() {
  unsigned char ident[EI_NIDENT];
  if (!source_->ReadExactly(0, ident, sizeof(ident)) || std::memcmp(ident, ELFMAG, SELFMAG) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": not an ELF file"));
  }
  if (ident[EI_DATA] != ELFDATA2LSB) {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": not a little-endian ELF file"));
  }
  if (ident[EI_CLASS] != ELFCLASS64 && ident[EI_CLASS] != ELFCLASS32) {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": neither a 32-bit nor a 64-bit ELF file"));
  }
  is_64_ = ident[EI_CLASS] == ELFCLASS64;

  uint64_t segments_at = 0, sections_at = 0;
  uint64_t section_count = 0;
  uint32_t segment_count = 0, segment_size = 0, section_size = 0, names = 0;
  if (!ReadAs<Elf64_Ehdr, Elf32_Ehdr>(*source_, 0, is_64_, [&](const auto& header) {
        type_ = header.e_type;
        machine_ = header.e_machine;
        segments_at = header.e_phoff;
        segment_count = header.e_phnum;
        segment_size = header.e_phentsize;
        sections_at = header.e_shoff;
        section_count = header.e_shnum;
        section_size = header.e_shentsize;
        names = header.e_shstrndx;
      })) {
    return absl::OutOfRangeError(absl::StrCat(name_, ": ELF header cut off"));
  }
  // Counts that do not fit into 16 bits are in section 0.
  if (sections_at != 0 && (section_count == 0 || names == SHN_XINDEX || segment_count == PN_XNUM)) {
    if (!ReadAs<Elf64_Shdr, Elf32_Shdr>(*source_, sections_at, is_64_, [&](const auto& first) {
          if (section_count == 0) section_count = first.sh_size;
          if (names == SHN_XINDEX) names = first.sh_link;
          if (segment_count == PN_XNUM) segment_count = first.sh_info;
        })) {
      return absl::OutOfRangeError(absl::StrCat(name_, ": section table at ", sections_at, " lies outside"));
    }
  }
  if (segments_at != 0 && segment_count != 0) {
    const absl::Status status = ReadSegments(segments_at, segment_count, segment_size);
    if (!status.ok()) return status;
  }
  if (sections_at != 0 && section_count != 0) {
    const absl::Status status = ReadSections(sections_at, section_count, section_size, names);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ElfFile::ReadSegments(uint64_t offset, uint32_t count, uint32_t entry_size) {
  if (count > kMaxSegments || entry_size < (is_64_ ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr))) {
    return absl::OutOfRangeError(
        absl::StrCat(name_, ": implausible program headers: ", count, " of ", entry_size, " bytes"));
  }
  segments_.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    if (!ReadAs<Elf64_Phdr, Elf32_Phdr>(*source_, offset + uint64_t{i} * entry_size, is_64_,
                                        [&](const auto& raw) {
                                          segments_.push_back({.type = raw.p_type,
                                                               .flags = raw.p_flags,
                                                               .offset = raw.p_offset,
                                                               .address = raw.p_vaddr,
                                                               .file_size = raw.p_filesz,
                                                               .memory_size = raw.p_memsz,
                                                               .alignment = raw.p_align});
                                        })) {
      return absl::OutOfRangeError(absl::StrCat(name_, ": program header ", i, " lies outside of the file"));
    }
  }
  return absl::OkStatus();
}

absl::Status ElfFile::ReadSections(uint64_t offset, uint64_t count, uint32_t entry_size, uint32_t names) {
  if (count > kMaxSections || entry_size < (is_64_ ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr))) {
    return absl::OutOfRangeError(
        absl::StrCat(name_, ": implausible section headers: ", count, " of ", entry_size, " bytes"));
  }
  std::vector<uint32_t> name_offsets;
  for (uint64_t i = 0; i < count; ++i) {
    if (!ReadAs<Elf64_Shdr, Elf32_Shdr>(*source_, offset + i * entry_size, is_64_, [&](const auto& raw) {
          name_offsets.push_back(raw.sh_name);
          sections_.push_back({.name = "",
                               .type = raw.sh_type,
                               .flags = raw.sh_flags,
                               .address = raw.sh_addr,
                               .offset = raw.sh_offset,
                               .size = raw.sh_size,
                               .entry_size = raw.sh_entsize,
                               .link = raw.sh_link,
                               .info = raw.sh_info});
        })) {
      // A file cut at its end has lost this table; the segments may still serve.
      sections_.clear();
      if (!segments_.empty()) return absl::OkStatus();
      return absl::OutOfRangeError(absl::StrCat(name_, ": section header ", i, " lies outside of the file"));
    }
  }
  if (names >= sections_.size()) return absl::OkStatus();
  const Section& table = sections_[names];
  if (table.type == SHT_NOBITS) return absl::OkStatus();
  const absl::StatusOr<std::string> text =
      source_->ReadString(table.offset, table.size, kMaxSectionNamesBytes);
  if (!text.ok()) return absl::OkStatus();  // sections without names still have types
  for (size_t i = 0; i < sections_.size(); ++i) {
    if (name_offsets[i] >= text->size()) continue;
    const absl::string_view rest = absl::string_view(*text).substr(name_offsets[i], 64);
    sections_[i].name = std::string(rest.substr(0, rest.find('\0')));
  }
  return absl::OkStatus();
}

void ElfFile::FindBuildId() {
  int looks_left = 64;
  const auto look = [this, &looks_left](uint64_t offset, uint64_t size, uint64_t alignment) {
    if (looks_left-- <= 0) return false;
    const absl::StatusOr<std::string> notes =
        source_->ReadString(offset, std::min(size, kMaxNotesBytes), kMaxNotesBytes);
    if (notes.ok()) build_id_ = BuildIdOfNotes(*notes, alignment == 8 ? 8 : 4);
    return !build_id_.empty();
  };
  for (const Section& section : sections_) {
    if (section.type == SHT_NOTE && section.name == ".note.gnu.build-id" &&
        look(section.offset, section.size, 4))
      return;
  }
  for (const Segment& segment : segments_) {
    if (segment.type == PT_NOTE && look(segment.offset, segment.file_size, segment.alignment)) return;
  }
  for (const Section& section : sections_) {
    if (section.type == SHT_NOTE && look(section.offset, section.size, 4)) return;
  }
}

const ElfFile::Section* ElfFile::FindSection(absl::string_view name) const {
  for (const Section& section : sections_) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

const ElfFile::Section* ElfFile::FindSectionOfType(uint32_t type) const {
  for (const Section& section : sections_) {
    if (section.type == type) return &section;
  }
  return nullptr;
}

const ElfFile::Section* ElfFile::SectionAt(uint64_t address) const {
  for (const Section& section : sections_) {
    if ((section.flags & SHF_ALLOC) != 0 && (section.flags & SHF_TLS) == 0 &&
        address - section.address < section.size) {
      return &section;
    }
  }
  return nullptr;
}

std::optional<uint64_t> ElfFile::AddressOfOffset(uint64_t file_offset) const {
  const Segment* loose = nullptr;
  for (const Segment& segment : segments_) {
    if (segment.type != PT_LOAD) continue;
    if (file_offset - segment.offset < segment.file_size && (segment.flags & PF_X) != 0) {
      return segment.address + (file_offset - segment.offset);
    }
    // Mappings are made of whole pages.
    const uint64_t page_offset = segment.offset & ~(kPageBytes - 1);
    if (segment.file_size == 0) continue;
    const uint64_t padded = segment.file_size + (segment.offset - page_offset) + kPageBytes;
    if (file_offset - page_offset < padded && (loose == nullptr || (segment.flags & PF_X) != 0))
      loose = &segment;
  }
  if (loose == nullptr) return std::nullopt;
  return loose->address + (file_offset - loose->offset);
}

std::optional<uint64_t> ElfFile::OffsetOfAddress(uint64_t address) const {
  for (const Segment& segment : segments_) {
    if (segment.type == PT_LOAD &&
        address - segment.address < std::max(segment.file_size, segment.memory_size)) {
      return segment.offset + (address - segment.address);
    }
  }
  return std::nullopt;
}

absl::StatusOr<std::string> ElfFile::ReadSection(const Section& section, uint64_t max_bytes) const {
  const std::string what = absl::StrCat(name_, ": section ", section.name);
  if (section.type == SHT_NOBITS)
    return absl::NotFoundError(absl::StrCat(what, " has no bytes in this file"));
  absl::StatusOr<std::string> bytes = source_->ReadString(section.offset, section.size, max_bytes);
  if (!bytes.ok()) return absl::OutOfRangeError(absl::StrCat(what, ": ", bytes.status().message()));
  uint64_t size = 0, header_size = 0;
  uint32_t method = 0;
  if ((section.flags & SHF_COMPRESSED) != 0) {
    const auto take = [&](const auto& header) {
      size = header.ch_size;
      method = header.ch_type;
      header_size = sizeof(header);
    };
    if (is_64_ && bytes->size() >= sizeof(Elf64_Chdr)) {
      Elf64_Chdr header;
      std::memcpy(&header, bytes->data(), sizeof(header));
      take(header);
    } else if (!is_64_ && bytes->size() >= sizeof(Elf32_Chdr)) {
      Elf32_Chdr header;
      std::memcpy(&header, bytes->data(), sizeof(header));
      take(header);
    } else {
      return absl::OutOfRangeError(absl::StrCat(what, ": compression header cut off"));
    }
  } else if (absl::StartsWith(section.name, ".zdebug_") && absl::StartsWith(*bytes, "ZLIB") &&
             bytes->size() >= 12) {
    for (int i = 4; i < 12; ++i) size = size << 8 | static_cast<unsigned char>((*bytes)[i]);  // big-endian
    method = ELFCOMPRESS_ZLIB;
    header_size = 12;
  } else {
    return bytes;
  }
  if (size > max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        what, ": says it has ", size, " bytes decompressed, more than the ", max_bytes, " allowed"));
  }
  return Inflate(absl::string_view(*bytes).substr(header_size), size, method, what);
}

absl::Status ElfFile::ForEachSymbol(const Section& table,
                                    const std::function<bool(const Symbol&)>& visit) const {
  const size_t entry = is_64_ ? sizeof(Elf64_Sym) : sizeof(Elf32_Sym);
  if (table.type == SHT_NOBITS)
    return absl::NotFoundError(absl::StrCat(name_, ": ", table.name, " was stripped"));
  std::vector<char> block(kSymbolsPerBlock * entry);
  uint64_t done = 0;
  while (done + entry <= table.size) {
    const uint64_t want = std::min<uint64_t>(block.size(), table.size - done);
    const size_t got = table.offset > ~done ? 0 : source_->ReadAt(table.offset + done, block.data(), want);
    const size_t whole = got / entry;
    if (whole == 0) {
      return absl::OutOfRangeError(
          absl::StrCat(name_, ": ", table.name, " of ", table.size, " bytes ends early, after ", done));
    }
    for (size_t i = 0; i < whole; ++i) {
      bool go_on;
      if (is_64_) {
        Elf64_Sym raw;
        std::memcpy(&raw, block.data() + i * entry, sizeof(raw));
        go_on = visit(SymbolOf(raw));
      } else {
        Elf32_Sym raw;
        std::memcpy(&raw, block.data() + i * entry, sizeof(raw));
        go_on = visit(SymbolOf(raw));
      }
      if (!go_on) return absl::OkStatus();
    }
    done += whole * entry;
  }
  return absl::OkStatus();
}

std::optional<ElfFile::Symbol> ElfFile::SymbolAt(const Section& table, uint64_t index) const {
  const uint64_t entry = is_64_ ? sizeof(Elf64_Sym) : sizeof(Elf32_Sym);
  if (table.type == SHT_NOBITS || index >= table.size / entry) return std::nullopt;
  Symbol symbol;
  if (!ReadAs<Elf64_Sym, Elf32_Sym>(*source_, table.offset + index * entry, is_64_,
                                    [&](const auto& raw) { symbol = SymbolOf(raw); })) {
    return std::nullopt;
  }
  return symbol;
}

std::string ElfFile::StringOf(const Section& table, uint32_t offset) const {
  if (table.link >= sections_.size()) return "";
  const Section& strings = sections_[table.link];
  if (strings.type != SHT_STRTAB || offset >= strings.size) return "";
  return source_->ReadCString(strings.offset + offset,
                              std::min<uint64_t>(kMaxSymbolNameBytes, strings.size - offset));
}

}  // namespace xenprof::symbols
