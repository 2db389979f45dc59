// Separate debug files: by build id, or by .gnu_debuglink and its checksum.
#ifndef XENPROF_SYMBOLS_DEBUG_FILES_H_
#define XENPROF_SYMBOLS_DEBUG_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "xenprof/symbols/elf_file.h"

namespace xenprof::symbols {

// The file `DIR/.build-id/xx/yyyy.debug` for a raw build id, in the first of `dirs` (seen from inside
// `folder`) that has one with this very build id; null if none.
std::shared_ptr<const ElfFile> FindByBuildId(const std::string& folder, const std::vector<std::string>& dirs,
                                             absl::string_view build_id);

// The debug file of `program`, which lies at `path` seen from inside `folder`. By build id first; then, by
// the name in .gnu_debuglink, beside the program, in .debug beside it and below `dirs`: taken when the build
// ids are equal or, where one has none, the CRC-32 of the whole file is the one in the section. Never the
// program itself. Null if none; `problem` then tells of files that were found and did not match.
std::shared_ptr<const ElfFile> FindDebugFile(const std::string& folder, const std::vector<std::string>& dirs,
                                             const ElfFile& program, absl::string_view path,
                                             std::string* problem);

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_DEBUG_FILES_H_
