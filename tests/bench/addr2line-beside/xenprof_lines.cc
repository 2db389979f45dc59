// Prints function, file and line of each address read from stdin, in the form of `addr2line -asfie ELF`, out
// of our own index: what the comparison with addr2line runs.
//
//   xenprof-lines ELF [INDEX_FOLDER] < addresses
//   xenprof-lines --names ELF < addresses
//
// With --names only the function of each address, out of the symbol table.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "xenprof/symbols/byte_stream.h"
#include "xenprof/symbols/dwarf_index.h"
#include "xenprof/symbols/elf_file.h"
#include "xenprof/symbols/elf_names.h"

namespace xenprof::symbols {
namespace {

constexpr size_t kOutputBlockBytes = 64 << 10;
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;

void Append(std::string& out, absl::string_view text) { out.append(text.data(), text.size()); }

absl::string_view WithoutFolder(absl::string_view file) {
  const size_t slash = file.rfind('/');
  return slash == absl::string_view::npos ? file : file.substr(slash + 1);
}

std::vector<uint64_t> ReadAddresses() {
  std::string text;
  struct stat info;
  if (fstat(STDIN_FILENO, &info) == 0) text.reserve(static_cast<size_t>(info.st_size) + 1);
  char block[64 << 10];
  for (ssize_t got; (got = read(STDIN_FILENO, block, sizeof(block))) > 0;) text.append(block, got);
  std::vector<uint64_t> addresses;
  addresses.reserve(text.size() / 8);
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end; ++at) {
    if (end - at > 2 && at[0] == '0' && at[1] == 'x') at += 2;
    uint64_t address = 0;
    const std::from_chars_result result = std::from_chars(at, end, address, 16);
    if (result.ec == std::errc()) addresses.push_back(address);
    at = std::find(result.ptr, end, '\n');
  }
  return addresses;
}

// Empties `out`.
bool WriteAll(std::string& out) {
  for (size_t done = 0; done < out.size();) {
    const ssize_t wrote = write(STDOUT_FILENO, out.data() + done, out.size() - done);
    if (wrote <= 0) return false;
    done += wrote;
  }
  out.clear();
  return true;
}

void AppendAddress(std::string& out, uint64_t address) {
  out += "0x";
  for (int shift = 60; shift >= 0; shift -= 4) out += "0123456789abcdef"[address >> shift & 15];
  out += '\n';
}

absl::StatusOr<std::shared_ptr<const ElfFile>> OpenElf(const std::string& path) {
  const absl::StatusOr<std::shared_ptr<const ByteSource>> source =
      SourceOfMaybeCompressed(path, kMaxFileBytes);
  if (!source.ok()) return source.status();
  return ElfFile::Open(*source, path);
}

// Addresses ascending.
int RunNames(const std::string& path) {
  const absl::StatusOr<std::shared_ptr<const ElfFile>> elf = OpenElf(path);
  if (!elf.ok()) {
    std::cerr << elf.status() << "\n";
    return 1;
  }
  const std::vector<uint64_t> addresses = ReadAddresses();
  const ElfNames names = FindElfNames(*elf, nullptr, addresses, kMaxFileBytes);
  std::string out;
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (out.size() > kOutputBlockBytes && !WriteAll(out)) return 1;
    AppendAddress(out, addresses[i]);
    const FunctionCache::Found* found = names.At(i);
    Append(out, found == nullptr ? "??" : absl::string_view(found->name));
    out += '\n';
  }
  return WriteAll(out) ? 0 : 1;
}

int Run(const std::string& path, const std::string& folder) {
  const absl::StatusOr<std::shared_ptr<const ElfFile>> elf = OpenElf(path);
  if (!elf.ok()) {
    std::cerr << elf.status() << "\n";
    return 1;
  }
  bool from_folder = false;
  const absl::StatusOr<std::unique_ptr<DwarfIndex>> index = OpenDwarfIndex(**elf, folder, &from_folder);
  if (!index.ok()) {
    std::cerr << index.status() << "\n";
    return 1;
  }
  std::vector<DwarfIndex::Level> levels;
  DwarfIndex::Position position;
  std::string out;
  char number[16];
  for (uint64_t address : ReadAddresses()) {
    if (out.size() > kOutputBlockBytes && !WriteAll(out)) return 1;
    AppendAddress(out, address);
    (*index)->Find(address, &position, &levels);
    if (levels.empty()) levels.emplace_back();
    for (const DwarfIndex::Level& level : levels) {
      Append(out, level.function.empty() ? "??" : level.function);
      out += '\n';
      Append(out, level.file.empty() ? "??" : WithoutFolder(level.file));
      out += ':';
      if (level.line == 0) {
        out += '?';
      } else {
        out.append(number, std::to_chars(number, number + sizeof(number), level.line).ptr - number);
      }
      out += '\n';
    }
  }
  return WriteAll(out) ? 0 : 1;
}

}  // namespace
}  // namespace xenprof::symbols

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::cerr << "usage: xenprof-lines ELF [INDEX_FOLDER] < addresses\n       xenprof-lines --names ELF < "
                 "addresses\n";
    return 2;
  }
  if (std::strcmp(argv[1], "--names") == 0 && argc == 3) return xenprof::symbols::RunNames(argv[2]);
  return xenprof::symbols::Run(argv[1], argc == 3 ? argv[2] : "");
}
