#include "tests/unit/symbols/sample_file.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tests/unit/symbols/test_support.h"

namespace xenprof::symbols {

std::string SamplePath(const std::string& variant) {
  const char* path = std::getenv(absl::StrCat("XENPROF_SAMPLE_", absl::AsciiStrToUpper(variant)).c_str());
  EXPECT_NE(path, nullptr) << "run by `meson test`, which says where the samples are";
  return path == nullptr ? "" : path;
}

uint64_t SampleOffset(const std::string& variant, const std::string& function) {
  void* library = dlopen(SamplePath(variant).c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  if (library == nullptr) return 0;
  auto address_of = reinterpret_cast<const void* (*)(const char*)>(dlsym(library, "sample_address"));
  const uint64_t address = reinterpret_cast<uint64_t>(address_of(function.c_str()));
  uint64_t found = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long start = 0, end = 0, offset = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*s %lx", &start, &end, &offset) != 3) continue;
    if (start <= address && address < end) found = address - start + offset;
  }
  EXPECT_NE(found, 0u) << function;
  return found;
}

std::shared_ptr<const ElfFile> OpenElfBytes(const std::string& bytes) {
  absl::StatusOr<std::shared_ptr<const ElfFile>> file = ElfFile::Open(MemoryByteSource(bytes), "bytes");
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? *file : nullptr;
}

std::string BuildIdOf(const std::string& bytes) { return OpenElfBytes(bytes)->build_id(); }

std::string OutputOf(const std::string& command) {
  std::string output;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return output;
  char block[4096];
  for (size_t got; (got = fread(block, 1, sizeof(block), pipe)) > 0;) output.append(block, got);
  return pclose(pipe) == 0 ? output : "";
}

bool Objcopy(const std::string& bytes, const std::vector<std::string>& arguments, std::string* result,
             const std::vector<std::pair<std::string, std::string>>& more) {
  FakeRoot folder;
  const std::string in = folder.Write("/in", bytes);
  for (const auto& [name, content] : more) folder.Write("/" + name, content);
  std::string command = "objcopy";
  for (const std::string& argument : arguments) {
    absl::StrAppend(&command, " '", absl::StrReplaceAll(argument, {{"{}", folder.path()}}), "'");
  }
  absl::StrAppend(&command, " ", in, " ", folder.path(), "/out 2>/dev/null && echo done");
  if (OutputOf(command) != "done\n") return false;
  *result = ReadFile(folder.path() + "/out");
  return true;
}

bool WithMiniDebugInfo(const std::string& bytes, std::string* result) {
  // Everything but the symbol table out; then what .dynsym has would go too, which changes nothing here.
  std::string debug, stripped;
  if (!Objcopy(bytes, {"--only-keep-debug", "--remove-section=.comment"}, &debug)) return false;
  if (!Objcopy(bytes, {"--strip-all"}, &stripped)) return false;
  return Objcopy(stripped, {"--add-section", ".gnu_debugdata={}/mini.xz"}, result, {{"mini.xz", Xz(debug)}});
}

}  // namespace xenprof::symbols
