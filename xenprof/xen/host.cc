#include "xenprof/xen/host.h"

#include <cstdio>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "xenprof/xen/files.h"

namespace xenprof::xen {
namespace {

std::string Value(const std::string& root, const char* path) {
  return ReadLine(RootedPath(root, path)).value_or("");
}

std::optional<bool> DetectDom0(const std::string& root) {
  // Present but empty in a guest; absent while xenfs is not mounted.
  if (absl::StatusOr<std::string> text = ReadLine(RootedPath(root, "/proc/xen/capabilities")); text.ok()) {
    return absl::StrContains(*text, "control_d");
  }
  if (absl::StatusOr<std::string> text = ReadLine(RootedPath(root, "/sys/hypervisor/start_flags/initdomain"));
      text.ok()) {
    return *text == "1";
  }
  if (absl::StatusOr<std::string> text = ReadLine(RootedPath(root, "/sys/hypervisor/uuid")); text.ok()) {
    return *text == "00000000-0000-0000-0000-000000000000";
  }
  return std::nullopt;
}

}  // namespace

XenHost DetectXenHost(const std::string& root) {
  XenHost host;
  host.on_xen = Value(root, "/sys/hypervisor/type") == "xen";
  if (!host.on_xen) {
    host.summary = "Not running on Xen: /sys/hypervisor/type does not say so.";
    return host;
  }
  host.dom0 = DetectDom0(root);
  host.guest_type = Value(root, "/sys/hypervisor/guest_type");
  const std::string major = Value(root, "/sys/hypervisor/version/major");
  if (!major.empty()) {
    host.version = absl::StrCat(major, ".", Value(root, "/sys/hypervisor/version/minor"),
                                Value(root, "/sys/hypervisor/version/extra"));
  }
  host.changeset = Value(root, "/sys/hypervisor/properties/changeset");
  host.capabilities = Value(root, "/sys/hypervisor/properties/capabilities");
  host.compiler = Value(root, "/sys/hypervisor/compilation/compiler");
  host.build_id = ReadSmallFile(RootedPath(root, "/sys/hypervisor/properties/buildid"), 64).value_or("");
  if (host.build_id.size() != 16 && host.build_id.size() != 20) host.build_id.clear();
  host.summary = absl::StrCat("Running on Xen", host.version.empty() ? "" : " ", host.version,
                              !host.dom0.has_value() ? ", perhaps as dom0"
                              : *host.dom0           ? " as dom0"
                                                     : " as a guest, not as dom0",
                              host.guest_type.empty() ? "" : absl::StrCat(" (", host.guest_type, ")"), ".");
  return host;
}

std::optional<bool> KernelHasHypervisorCallchain(const std::string& root) {
  std::FILE* file = std::fopen(RootedPath(root, "/proc/kallsyms").c_str(), "re");
  if (file == nullptr) return std::nullopt;
  // "address type name[\t[module]]"; a name is shorter than 512 bytes.
  char line[1024];
  bool any = false;
  bool found = false;
  while (!found && std::fgets(line, sizeof(line), file) != nullptr) {
    any = true;
    const char* name = std::strstr(line, " xen_hypervisor_callchain");
    if (name == nullptr) continue;
    const char after = name[std::strlen(" xen_hypervisor_callchain")];
    // compilers add suffixes such as .cold or .constprop.0
    found = after == '\n' || after == '\0' || after == '\t' || after == '.' || after == ' ';
  }
  std::fclose(file);
  if (!any) return std::nullopt;
  return found;
}

}  // namespace xenprof::xen
