#include "xenprof/symbols/dwarf_sections.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace xenprof::symbols {
namespace {

const ElfFile::Section* FindDebugSection(const ElfFile& file, absl::string_view name) {
  const ElfFile::Section* section = file.FindSection(absl::StrCat(".debug_", name));
  if (section == nullptr) section = file.FindSection(absl::StrCat(".zdebug_", name));
  return section != nullptr && section->type != SHT_NOBITS ? section : nullptr;
}

absl::Status ReadWhole(const ElfFile& file, absl::string_view name, uint64_t max_bytes, std::string* bytes) {
  const ElfFile::Section* section = FindDebugSection(file, name);
  if (section == nullptr) return absl::OkStatus();
  absl::StatusOr<std::string> read = file.ReadSection(*section, max_bytes);
  if (!read.ok()) return read.status();
  *bytes = *std::move(read);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DwarfSection> DwarfSection::Open(const ElfFile& file, absl::string_view name,
                                                uint64_t max_bytes) {
  DwarfSection result;
  result.name_ = absl::StrCat(file.name(), ": .debug_", name);
  const ElfFile::Section* section = FindDebugSection(file, name);
  if (section == nullptr) return absl::NotFoundError(absl::StrCat(result.name_, " is missing"));
  if ((section->flags & SHF_COMPRESSED) != 0 || section->name[1] == 'z') {
    absl::StatusOr<std::string> bytes = file.ReadSection(*section, max_bytes);
    if (!bytes.ok()) return bytes.status();
    result.bytes_ = *std::move(bytes);
    result.size_ = result.bytes_.size();
    result.in_memory_ = true;
    return result;
  }
  const uint64_t file_size = file.source()->Size();
  if (section->offset > file_size || section->size > file_size - section->offset) {
    return absl::OutOfRangeError(absl::StrCat(result.name_, " lies outside of the file"));
  }
  result.source_ = file.source();
  result.offset_ = section->offset;
  result.size_ = section->size;
  return result;
}

absl::StatusOr<absl::string_view> DwarfSection::Slice(uint64_t offset, uint64_t size,
                                                      std::string& buffer) const {
  if (offset > size_ || size > size_ - offset) {
    return absl::OutOfRangeError(
        absl::StrCat(name_, ": ", size, " bytes at ", offset, " lie outside of its ", size_));
  }
  if (in_memory_) return absl::string_view(bytes_).substr(offset, size);
  if (buffer.size() < size) buffer.resize(size);
  if (!source_->ReadExactly(offset_ + offset, buffer.data(), size)) {
    return absl::OutOfRangeError(absl::StrCat(name_, ": ", size, " bytes at ", offset, " cannot be read"));
  }
  return absl::string_view(buffer.data(), size);
}

absl::StatusOr<std::unique_ptr<DwarfSections>> DwarfSections::Open(const ElfFile& file, uint64_t max_bytes) {
  auto sections = std::make_unique<DwarfSections>();
  absl::StatusOr<DwarfSection> info = DwarfSection::Open(file, "info", max_bytes);
  if (!info.ok()) return info.status();
  sections->info = *std::move(info);
  absl::StatusOr<DwarfSection> line = DwarfSection::Open(file, "line", max_bytes);
  if (line.ok()) {
    sections->line = *std::move(line);
  } else if (!absl::IsNotFound(line.status())) {
    return line.status();
  }
  const std::pair<const char*, std::string*> whole[] = {
      {"abbrev", &sections->abbrev},           {"str", &sections->str},
      {"line_str", &sections->line_str},       {"ranges", &sections->ranges},
      {"rnglists", &sections->rnglists},       {"addr", &sections->addr},
      {"str_offsets", &sections->str_offsets},
  };
  for (const auto& [name, bytes] : whole) {
    const absl::Status status = ReadWhole(file, name, max_bytes, bytes);
    if (!status.ok()) return status;
  }
  return sections;
}

absl::string_view DwarfStringAt(absl::string_view section, uint64_t offset) {
  if (offset >= section.size()) return {};
  const absl::string_view rest = section.substr(offset);
  const size_t zero = rest.find('\0');
  return zero == absl::string_view::npos ? absl::string_view() : rest.substr(0, zero);
}

}  // namespace xenprof::symbols
