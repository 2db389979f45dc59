#include "daemon/host_facts.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "xenprof/base/framing.h"
#include "xenprof/perf/events.h"
#include "xenprof/symbols/kernel_symbols.h"

namespace xenprof::daemon {
namespace {

std::string ReadFile(const std::string& path, size_t max_bytes) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  if (!fd.valid()) return text;
  char buffer[16 << 10];
  ssize_t size;
  while (text.size() < max_bytes && (size = read(fd.get(), buffer, sizeof(buffer))) > 0) {
    text.append(buffer, static_cast<size_t>(size));
  }
  return text;
}

std::string FirstLine(const std::string& path) {
  const std::string text = ReadFile(path, 4096);
  return text.substr(0, text.find('\n'));
}

// [_stext, _etext) of /proc/kallsyms; reads no further than to the later of the two.
bool FindKernelImage(const std::string& path, uint64_t* start, uint64_t* end) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  *start = *end = 0;
  if (!fd.valid()) return false;
  std::vector<char> buffer(64 << 10);
  size_t held = 0;
  bool have_start = false, have_end = false;
  const auto take = [&](absl::string_view text, absl::string_view symbol, uint64_t* address) {
    const size_t at = text.find(symbol);
    if (at == absl::string_view::npos) return false;
    const size_t line = text.rfind('\n', at);
    const size_t first = line == absl::string_view::npos ? 0 : line + 1;
    return std::from_chars(text.data() + first, text.data() + text.size(), *address, 16).ec == std::errc();
  };
  ssize_t size;
  while (!(have_start && have_end) &&
         (size = read(fd.get(), buffer.data() + held, buffer.size() - held)) > 0) {
    held += static_cast<size_t>(size);
    const absl::string_view text(buffer.data(), held);
    const size_t whole = text.rfind('\n');
    if (whole == absl::string_view::npos) break;
    const absl::string_view lines = text.substr(0, whole + 1);
    if (!have_start) have_start = take(lines, " T _stext\n", start);
    if (!have_end) have_end = take(lines, " T _etext\n", end);
    memmove(buffer.data(), buffer.data() + whole + 1, held - whole - 1);
    held -= whole + 1;
  }
  return have_start && have_end;
}

}  // namespace

proto::Host ReadHostFacts(const std::string& root) {
  proto::Host host;
  utsname names;
  if (uname(&names) == 0) {
    host.set_hostname(names.nodename);
    host.set_kernel_release(names.release);
    host.set_machine(names.machine);
  }
  host.set_kernel_build_id(symbols::BuildIdOfNotes(ReadFile(root + "/sys/kernel/notes", 64 << 10)));
  host.set_boot_id(FirstLine(root + "/proc/sys/kernel/random/boot_id"));
  // One processor's entry is enough.
  for (absl::string_view line : absl::StrSplit(ReadFile(root + "/proc/cpuinfo", 4096), '\n')) {
    if (!absl::StartsWith(line, "model name")) continue;
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    host.set_cpu_model(std::string(absl::StripAsciiWhitespace(field.second)));
    break;
  }
  absl::StatusOr<std::vector<uint32_t>> present =
      perf::ParseCpuList(FirstLine(root + "/sys/devices/system/cpu/present"));
  if (present.ok()) host.set_cpu_count(static_cast<uint32_t>(present->size()));
  return host;
}

KernelText ReadKernelText(const std::string& root) {
  KernelText text;
  uint64_t start, end;
  const bool found = FindKernelImage(root + "/proc/kallsyms", &start, &end);
  if (found && start == 0) {
    text.restricted = true;
    return text;
  }
  // "name size refcount users state 0xaddress"
  for (absl::string_view line :
       absl::StrSplit(ReadFile(root + "/proc/modules", 4 << 20), '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    uint64_t size, address;
    if (fields.size() < 6 || !absl::SimpleAtoi(fields[1], &size) || !absl::SimpleHexAtoi(fields[5], &address))
      continue;
    if (address == 0) {
      text.restricted = true;
      continue;
    }
    const std::string notes =
        ReadFile(absl::StrCat(root, "/sys/module/", fields[0], "/notes/.note.gnu.build-id"), 4096);
    text.ranges.push_back(
        {address, address + size, absl::StrCat("[", fields[0], "]"), symbols::BuildIdOfNotes(notes)});
  }
  if (found && end > start) {
    text.ranges.push_back(
        {start, end, "[kernel]", symbols::BuildIdOfNotes(ReadFile(root + "/sys/kernel/notes", 64 << 10))});
  }
  std::sort(text.ranges.begin(), text.ranges.end(),
            [](const merge::TextRange& a, const merge::TextRange& b) { return a.start < b.start; });
  // Since Linux 6.4 a module's parts lie apart, and its size is the sum of them: its text ends where the next
  // one's begins at the latest.
  for (size_t i = 0; i + 1 < text.ranges.size(); ++i) {
    text.ranges[i].end = std::min(text.ranges[i].end, text.ranges[i + 1].start);
  }
  return text;
}

std::string ModuleFingerprint(const std::string& root) {
  // The counts of users change all the time; names, sizes and addresses do not.
  std::string fingerprint;
  for (absl::string_view line :
       absl::StrSplit(ReadFile(root + "/proc/modules", 4 << 20), '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    if (fields.size() >= 6) absl::StrAppend(&fingerprint, fields[0], " ", fields[1], " ", fields[5], "\n");
  }
  return fingerprint;
}

}  // namespace xenprof::daemon
