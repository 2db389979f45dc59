#include "xenprof/symbols/dwarf_lines.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "xenprof/symbols/dwarf_cursor.h"
#include "xenprof/symbols/dwarf_forms.h"

namespace xenprof::symbols {
namespace {

// DWARF 5, section 7.22 and table 7.27.
enum : unsigned {
  kLnsCopy = 1,
  kLnsAdvancePc = 2,
  kLnsAdvanceLine = 3,
  kLnsSetFile = 4,
  kLnsConstAddPc = 8,
  kLnsFixedAdvancePc = 9,
  kLneEndSequence = 1,
  kLneSetAddress = 2,
  kLneDefineFile = 3,
  kLnctPath = 1,
  kLnctDirectoryIndex = 2,
};
// Far more than compilers write; a table that says more is damaged.
constexpr uint64_t kMaxEntries = 1 << 20;

struct Header {
  bool dwarf64 = false;
  uint8_t min_instruction_bytes = 1;
  int8_t line_base = 0;
  uint8_t line_range = 1;
  uint8_t opcode_base = 1;
  std::vector<uint8_t> operands;  // of standard opcodes
  uint64_t program_at = 0;
};

// The folder or file entries of version 5. False when a form is not known.
bool ReadEntries(const DwarfSections& sections, DwarfCursor& at, bool dwarf64,
                 const std::function<void(absl::string_view name, uint64_t folder)>& add) {
  std::vector<std::pair<uint64_t, uint64_t>> format(at.U8());
  for (auto& [content, form] : format) {
    content = at.Uleb();
    form = at.Uleb();
  }
  const uint64_t count = at.Uleb();
  if (count > kMaxEntries || (format.empty() && count > 0)) return false;
  for (uint64_t i = 0; i < count && !at.bad(); ++i) {
    absl::string_view name;
    uint64_t folder = 0;
    for (const auto& [content, form] : format) {
      absl::string_view text;
      uint64_t number = 0;
      switch (form) {
        case kFormString:
          text = at.CString();
          break;
        case kFormStrp:
          text = DwarfStringAt(sections.str, dwarf64 ? at.U64() : at.U32());
          break;
        case kFormLineStrp:
          text = DwarfStringAt(sections.line_str, dwarf64 ? at.U64() : at.U32());
          break;
        case kFormData1:
          number = at.U8();
          break;
        case kFormData2:
          number = at.U16();
          break;
        case kFormData4:
          number = at.U32();
          break;
        case kFormData8:
          number = at.U64();
          break;
        case kFormUdata:
          number = at.Uleb();
          break;
        case kFormData16:
          at.Skip(16);
          break;
        case kFormBlock:
          at.Skip(at.Uleb());
          break;
        default:
          return false;
      }
      if (content == kLnctPath) name = text;
      if (content == kLnctDirectoryIndex) folder = number;
    }
    add(name, folder);
  }
  return !at.bad();
}

bool ReadOldEntries(DwarfCursor& at, DwarfLineTable* table) {
  while (true) {
    const absl::string_view folder = at.CString();
    if (at.bad() || folder.empty()) break;
    table->folders.push_back(folder);
  }
  while (!at.bad()) {
    const absl::string_view name = at.CString();
    if (at.bad() || name.empty()) break;
    const uint64_t folder = at.Uleb();
    at.SkipLeb();  // time of change
    at.SkipLeb();  // size
    table->files.push_back({name, folder});
  }
  return !at.bad();
}

void RunProgram(const Header& header, DwarfCursor at, DwarfLineTable* table,
                const std::function<void(const DwarfLineSequence&)>& take) {
  DwarfLineSequence rows;
  DwarfLineRow now{.address = 0, .file = 1, .line = 1};
  bool ascending = true;
  const auto emit = [&]() {
    if (!rows.empty() && rows.back().address == now.address) {
      rows.back() = now;
      return;
    }
    if (!rows.empty() && now.address < rows.back().address) ascending = false;
    rows.push_back(now);
  };
  const auto advance = [&](uint64_t operations) { now.address += operations * header.min_instruction_bytes; };
  while (!at.AtEnd()) {
    const uint8_t opcode = at.U8();
    if (opcode >= header.opcode_base) {
      const unsigned adjusted = opcode - header.opcode_base;
      advance(adjusted / header.line_range);
      now.line += header.line_base + static_cast<int>(adjusted % header.line_range);
      emit();
      continue;
    }
    switch (opcode) {
      case 0: {
        const uint64_t size = at.Uleb();
        DwarfCursor extended(at.Bytes(size));
        switch (extended.U8()) {
          case kLneEndSequence:
            // The end keeps its own place even where the last row has the same address.
            if (rows.empty() || rows.back().address != now.address) emit();
            if (!ascending) {
              std::stable_sort(rows.begin(), rows.end() - 1,
                               [](const auto& a, const auto& b) { return a.address < b.address; });
            }
            if (rows.size() > 1) take(rows);
            rows.clear();
            ascending = true;
            now = {.address = 0, .file = 1, .line = 1};
            break;
          case kLneSetAddress:
            now.address = extended.Sized(static_cast<unsigned>(size - 1));
            break;
          case kLneDefineFile: {
            const absl::string_view name = extended.CString();
            table->files.push_back({name, extended.Uleb()});
            break;
          }
          default:
            break;
        }
        break;
      }
      case kLnsCopy:
        emit();
        break;
      case kLnsAdvancePc:
        advance(at.Uleb());
        break;
      case kLnsAdvanceLine:
        now.line += static_cast<uint32_t>(at.Sleb());
        break;
      case kLnsSetFile:
        now.file = static_cast<uint32_t>(at.Uleb());
        break;
      case kLnsConstAddPc:
        advance((255u - header.opcode_base) / header.line_range);
        break;
      case kLnsFixedAdvancePc:
        now.address += at.U16();
        break;
      default:
        for (uint8_t i = 0; i < header.operands[opcode - 1]; ++i) at.SkipLeb();
    }
  }
}

std::string Join(absl::string_view folder, absl::string_view name) { return absl::StrCat(folder, "/", name); }

}  // namespace

std::string DwarfLineTable::FileName(uint32_t index, absl::string_view compilation_folder) const {
  if (version < 5) --index;  // 0 becomes the largest number
  if (index >= files.size() || files[index].name.empty()) return "";
  const File& file = files[index];
  if (file.name[0] == '/') return std::string(file.name);
  absl::string_view folder;
  if (file.folder != 0) {
    const uint64_t at = version < 5 ? file.folder - 1 : file.folder;
    if (at < folders.size()) folder = folders[at];
  }
  std::string name(file.name);
  if (!folder.empty()) name = Join(folder, name);
  if ((folder.empty() || folder[0] != '/') && !compilation_folder.empty())
    name = Join(compilation_folder, name);
  return name;
}

absl::Status ReadDwarfLines(const DwarfSections& sections, uint64_t offset, DwarfLineTable* table,
                            const std::function<void(const DwarfLineSequence&)>& take) {
  const auto damaged = [offset](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(".debug_line at ", offset, ": ", what));
  };
  std::string front;
  absl::StatusOr<absl::string_view> start = sections.line.Slice(
      offset, std::min<uint64_t>(12, sections.line.size() - std::min(offset, sections.line.size())), front);
  if (!start.ok()) return start.status();
  DwarfCursor first(*start);
  Header header;
  uint64_t size = first.U32();
  if (size == 0xffffffff) {
    header.dwarf64 = true;
    size = first.U64();
  }
  if (first.bad()) return damaged("cut off");
  absl::StatusOr<absl::string_view> bytes = sections.line.Slice(offset + first.offset(), size, table->buffer);
  if (!bytes.ok()) return bytes.status();

  DwarfCursor at(*bytes);
  table->version = at.U16();
  if (table->version < 2 || table->version > 5) return damaged(absl::StrCat("version ", table->version));
  if (table->version >= 5) at.Skip(2);  // sizes of an address and of a segment selector
  const uint64_t header_size = header.dwarf64 ? at.U64() : at.U32();
  header.program_at = at.offset() + header_size;
  header.min_instruction_bytes = at.U8();
  if (table->version >= 4) at.Skip(1);  // operations per instruction, 1 but for VLIW machines
  at.Skip(1);                           // default_is_stmt
  header.line_base = static_cast<int8_t>(at.U8());
  header.line_range = at.U8();
  header.opcode_base = at.U8();
  if (at.bad() || header.line_range == 0 || header.opcode_base == 0) return damaged("header makes no sense");
  for (int i = 1; i < header.opcode_base; ++i) header.operands.push_back(at.U8());
  const bool read =
      table->version < 5
          ? ReadOldEntries(at, table)
          : ReadEntries(sections, at, header.dwarf64,
                        [table](absl::string_view name, uint64_t) { table->folders.push_back(name); }) &&
                ReadEntries(sections, at, header.dwarf64, [table](absl::string_view name, uint64_t folder) {
                  table->files.push_back({name, folder});
                });
  if (!read) return damaged("its list of files makes no sense");
  at.Seek(header.program_at);
  if (at.bad()) return damaged("program lies outside");
  RunProgram(header, at, table, take);
  return absl::OkStatus();
}

}  // namespace xenprof::symbols
