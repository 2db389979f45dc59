// The exact commands that change Xen's command line, which every distribution does in its own way.
#ifndef XENPROF_XEN_FIX_LINES_H_
#define XENPROF_XEN_FIX_LINES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace xenprof::xen {

enum class Distribution {
  kUnknown,
  kDebian,     // Debian, Ubuntu and theirs: /etc/default/grub.d, update-grub
  kXenServer,  // XCP-ng, XenServer, Citrix Hypervisor: xen-cmdline
  kGrub2,      // Qubes OS, Fedora, openSUSE: /etc/default/grub, grub2-mkconfig
  kGrub,       // Arch, Alpine and others: /etc/default/grub, grub-mkconfig
};

struct Platform {
  Distribution distribution = Distribution::kUnknown;
  std::string name;  // PRETTY_NAME of os-release
};
// `root` is put in front of /etc/os-release and of what else tells.
Platform DetectPlatform(const std::string& root = "/");

// Shell commands that set `options` (space-separated, e.g. "vpmu=on watchdog=0") for the next boot, the
// reboot last. Empty when `distribution` is unknown.
std::vector<std::string> XenOptionCommands(Distribution distribution, absl::string_view options);
// A sentence for the cases in which there is no command.
std::string XenOptionAdvice(absl::string_view options);

// Installs what holds xen-syms of Xen `version` ("4.17.5"); empty when the distribution has no such package.
std::vector<std::string> XenSymbolCommands(Distribution distribution, absl::string_view version);

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_FIX_LINES_H_
