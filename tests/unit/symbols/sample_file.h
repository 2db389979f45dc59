// The sample library (see sample/) as built in one variant.
#ifndef XENPROF_TESTS_UNIT_SYMBOLS_SAMPLE_FILE_H_
#define XENPROF_TESTS_UNIT_SYMBOLS_SAMPLE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "xenprof/symbols/elf_file.h"

namespace xenprof::symbols {

// Path of variant "plain", "no_id", "dwarf3", "dwarf4", "dwarf5" or "packed"; empty when the build did not
// say.
std::string SamplePath(const std::string& variant);

// Loads a variant and returns the file offset of "hidden", "plain", "exported", "chosen" or "sizeless", as a
// mapping of the kernel would have it.
uint64_t SampleOffset(const std::string& variant, const std::string& function);

// What "hidden" is called in C++.
inline constexpr char kHidden[] = "(anonymous namespace)::Hidden(int)";

std::shared_ptr<const ElfFile> OpenElfBytes(const std::string& bytes);
std::string BuildIdOf(const std::string& bytes);

// Runs objcopy on a copy of `bytes`; false when the machine has none. `more` files are kept beside it while
// it runs, and
// "{}" in an argument stands for their folder.
bool Objcopy(const std::string& bytes, const std::vector<std::string>& arguments, std::string* result,
             const std::vector<std::pair<std::string, std::string>>& more = {});

// What EL distributions do to a program: stripped, with an xz-compressed symbol table of what .dynsym lacks.
bool WithMiniDebugInfo(const std::string& bytes, std::string* result);

// Output of a command; empty when it cannot be run.
std::string OutputOf(const std::string& command);

}  // namespace xenprof::symbols

#endif  // XENPROF_TESTS_UNIT_SYMBOLS_SAMPLE_FILE_H_
