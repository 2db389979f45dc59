// Files that hold Xen's symbols, and whether they belong to the running Xen.
#ifndef XENPROF_XEN_XEN_SYMBOL_FILES_H_
#define XENPROF_XEN_XEN_SYMBOL_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace xenprof::xen {

// GNU build id of an ELF file, raw bytes. NotFound when it has none.
absl::StatusOr<std::string> ElfBuildId(const std::string& path);

struct XenSymbolFiles {
  bool xensyms = false;  // /proc/xen/xensyms is there: always of the running Xen
  bool xenfs_mounted = false;
  std::string matching;                 // a xen-syms whose build id is the running Xen's, "" when none
  std::vector<std::string> mismatched;  // xen-syms of another build
  std::vector<std::string> maps;        // xen-*.map, which carry no build id
};
// Looks in /proc/xen, /boot, /usr/lib/debug/boot and /usr/lib/debug below `root`. With an empty `build_id`
// nothing can match.
XenSymbolFiles FindXenSymbolFiles(const std::string& root, const std::string& build_id);

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_XEN_SYMBOL_FILES_H_
