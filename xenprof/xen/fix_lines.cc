#include "xenprof/xen/fix_lines.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "xenprof/xen/files.h"

namespace xenprof::xen {
namespace {

// Value of KEY= in os-release, without quotes.
std::string OsReleaseValue(absl::string_view text, absl::string_view key) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, key) || !absl::ConsumePrefix(&line, "=")) continue;
    for (char quote : {'"', '\''}) {
      const absl::string_view text_quote(&quote, 1);
      if (absl::ConsumePrefix(&line, text_quote)) absl::ConsumeSuffix(&line, text_quote);
    }
    return std::string(line);
  }
  return "";
}

}  // namespace

Platform DetectPlatform(const std::string& root) {
  Platform platform;
  absl::StatusOr<std::string> text = ReadSmallFile(RootedPath(root, "/etc/os-release"), 65536);
  if (!text.ok()) text = ReadSmallFile(RootedPath(root, "/usr/lib/os-release"), 65536);
  const std::string release = text.value_or("");
  platform.name = OsReleaseValue(release, "PRETTY_NAME");
  // XCP-ng and XenServer call themselves by several ids over the years; the tool is what counts.
  if (FileExists(RootedPath(root, "/opt/xensource/libexec/xen-cmdline"))) {
    platform.distribution = Distribution::kXenServer;
    return platform;
  }
  const std::vector<std::string> ids =
      absl::StrSplit(absl::StrCat(OsReleaseValue(release, "ID"), " ", OsReleaseValue(release, "ID_LIKE")),
                     ' ', absl::SkipEmpty());
  for (const std::string& id : ids) {
    if (id == "debian" || id == "ubuntu") {
      platform.distribution = Distribution::kDebian;
    } else if (id == "xenenterprise" || id == "xcp-ng" || id == "xenserver") {
      platform.distribution = Distribution::kXenServer;
    } else if (id == "qubes" || id == "fedora" || id == "suse" || id == "opensuse" || id == "rhel" ||
               id == "centos") {
      platform.distribution = Distribution::kGrub2;
    } else if (id == "arch" || id == "alpine" || id == "gentoo") {
      platform.distribution = Distribution::kGrub;
    }
    if (platform.distribution != Distribution::kUnknown) break;
  }
  return platform;
}

std::vector<std::string> XenOptionCommands(Distribution distribution, absl::string_view options) {
  std::vector<std::string> commands;
  if (options.empty()) return commands;
  const std::string setting = absl::StrCat("echo 'GRUB_CMDLINE_XEN_DEFAULT=\"$GRUB_CMDLINE_XEN_DEFAULT ",
                                           options, "\"' >> /etc/default/");
  switch (distribution) {
    case Distribution::kUnknown:
      return commands;
    case Distribution::kDebian:
      commands = {absl::StrCat(setting, "grub.d/xenprof.cfg"), "update-grub"};
      break;
    case Distribution::kXenServer:
      for (absl::string_view option : absl::StrSplit(options, ' ', absl::SkipEmpty())) {
        commands.push_back(absl::StrCat("/opt/xensource/libexec/xen-cmdline --set-xen ", option));
      }
      break;
    case Distribution::kGrub2:
      commands = {absl::StrCat(setting, "grub"), "grub2-mkconfig -o /boot/grub2/grub.cfg"};
      break;
    case Distribution::kGrub:
      commands = {absl::StrCat(setting, "grub"), "grub-mkconfig -o /boot/grub/grub.cfg"};
      break;
  }
  commands.push_back("reboot");
  return commands;
}

std::string XenOptionAdvice(absl::string_view options) {
  return absl::StrCat("In the boot loader, add to the end of Xen's line (not the kernel's): ", options,
                      "; then reboot.");
}

std::vector<std::string> XenSymbolCommands(Distribution distribution, absl::string_view version) {
  const std::vector<std::string> parts = absl::StrSplit(version, '.');
  switch (distribution) {
    case Distribution::kDebian:
      if (parts.size() < 2) return {};
      return {absl::StrCat("apt-get install xen-hypervisor-", parts[0], ".", parts[1], "-amd64-dbg")};
    case Distribution::kXenServer:
      return {"yum install xen-hypervisor"};
    default:
      return {};
  }
}

}  // namespace xenprof::xen
