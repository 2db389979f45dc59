// Where Xen's symbols can come from, and which of it is of the right build.
#ifndef XENPROF_SYMBOLS_XEN_SOURCES_H_
#define XENPROF_SYMBOLS_XEN_SOURCES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "xenprof/symbols/elf_file.h"

namespace xenprof::symbols {

struct XenSearchOptions {
  std::string root;                       // folder that stands for "/"
  bool live = true;                       // the Xen sampled is the one running below this kernel now
  std::vector<std::string> files;         // given by the user: symbol texts or ELF files, plain, .xz or .gz
  std::string xensyms_path;               // empty: /proc/xen/xensyms below `root`
  std::string build_id;                   // raw; of the Xen in question. Empty and `live`: as sysfs tells
  std::vector<std::string> symbol_roots;  // further folders that stand for "/"
  std::vector<std::string> debug_dirs;
  uint64_t max_decompressed_bytes = 512 << 20;
};

struct XenSymbolSource {
  enum Kind { kNone, kText, kElf };
  Kind kind = kNone;
  std::string path;
  std::shared_ptr<const ElfFile> elf;  // of kElf
  bool build_id_matches = false;       // known to be of the build asked for
};

// Raw build id of the Xen in question, empty when not known: options.build_id, else, when live,
// /sys/hypervisor/properties/buildid. The kernel writes that with "%s" (drivers/xen/sys-hypervisor.c), so it
// ends at the first zero byte.
std::string RunningXenBuildId(const XenSearchOptions& options);

// `of_file` is the build id `wanted`, or continues it after the zero byte where sysfs cut it.
bool XenBuildIdMatches(absl::string_view of_file, absl::string_view wanted);

// The best source of function names for the Xen of build id `wanted` (empty: unknown): what the user gave (a
// text is taken at its word, an ELF file must match), /proc/xen/xensyms, xen-syms ELF files of that build id,
// a xen-*.map beside a boot image of that build id. `problem` tells what was passed over and why.
XenSymbolSource FindXenSymbols(const XenSearchOptions& options, const std::string& wanted,
                               std::string* problem);

bool HasDwarf(const ElfFile& elf);

// An ELF file of build id `wanted` with DWARF, the user's first; null if none. An ELF file that the user gave
// is taken when `wanted` is unknown.
std::shared_ptr<const ElfFile> FindXenDwarf(const XenSearchOptions& options, const std::string& wanted,
                                            std::string* problem);

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_XEN_SOURCES_H_
