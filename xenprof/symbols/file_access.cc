#include "xenprof/symbols/file_access.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "xenprof/symbols/byte_stream.h"

namespace xenprof::symbols {
namespace {

constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
constexpr uint64_t kMaxProcFileBytes = 64 << 20;
// Processes of a mapping that are tried; more of them show the same file.
constexpr size_t kMaxProcesses = 8;

UniqueFd RegularOnly(UniqueFd fd) {
  struct stat status;
  if (!fd.valid()) return fd;
  if (fstat(fd.get(), &status) != 0) {
    fd.Reset(-1);
  } else if (!S_ISREG(status.st_mode)) {
    fd.Reset(-1);
    errno = EINVAL;
  }
  return fd;
}

struct ProcessStatus {
  bool known = false;
  uid_t uid = 0;           // effective
  uint32_t inner_pid = 0;  // in its own pid namespace
};

ProcessStatus StatusOf(const std::string& root, uint32_t pid) {
  ProcessStatus status;
  absl::StatusOr<std::unique_ptr<ByteStream>> stream =
      StreamOfFile(absl::StrCat(root, "/proc/", pid, "/status"), kMaxProcFileBytes);
  if (!stream.ok()) return status;
  LineReader reader(stream->get());
  absl::string_view line;
  while (reader.Next(&line)) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() < 2) continue;
    if (words[0] == "Uid:" && words.size() >= 3) {
      status.known = absl::SimpleAtoi(words[2], &status.uid);
    } else if (words[0] == "NSpid:") {
      (void)absl::SimpleAtoi(words.back(), &status.inner_pid);
    }
  }
  if (status.inner_pid == 0) status.inner_pid = pid;
  return status;
}

// Deleted files, through the processes that still have them.
bool VisitDeleted(const std::string& root, uint32_t pid, const std::string& name,
                  const std::function<bool(Candidate)>& visit) {
  const std::string process = absl::StrCat(root, "/proc/", pid);
  absl::StatusOr<std::unique_ptr<ByteStream>> maps = StreamOfFile(process + "/maps", kMaxProcFileBytes);
  const std::string plain(absl::StripSuffix(name, " (deleted)"));
  std::string range;
  if (maps.ok()) {
    LineReader reader(maps->get());
    absl::string_view line;
    while (range.empty() && reader.Next(&line)) {
      const size_t path = line.find('/');
      if (path == absl::string_view::npos || line.substr(path) != plain + " (deleted)") continue;
      range = std::string(line.substr(0, line.find(' ')));
    }
  }
  if (!range.empty()) {
    const std::string where = absl::StrCat(process, "/map_files/", range);
    UniqueFd fd = RegularOnly(UniqueFd(open(where.c_str(), kOpenFlags)));
    if (fd.valid() && visit({where, process + "/root", std::move(fd)})) return true;
  }
  char target[4096];
  const std::string where = process + "/exe";
  const ssize_t size = readlink(where.c_str(), target, sizeof(target));
  if (size <= 0 || absl::string_view(target, size) != plain + " (deleted)") return false;
  UniqueFd fd = RegularOnly(UniqueFd(open(where.c_str(), kOpenFlags)));
  return fd.valid() && visit({where, process + "/root", std::move(fd)});
}

}  // namespace

UniqueFd OpenBelow(const std::string& root_folder, absl::string_view path) {
  if (root_folder.empty()) return RegularOnly(UniqueFd(open(std::string(path).c_str(), kOpenFlags)));
  const UniqueFd folder(open(root_folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return UniqueFd();
  while (absl::ConsumePrefix(&path, "/")) {
  }
  const std::string below(path);
  open_how how = {};
  how.flags = kOpenFlags;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  UniqueFd fd(syscall(SYS_openat2, folder.get(), below.c_str(), &how, sizeof(how)));
  if (!fd.valid() && (errno == ENOSYS || errno == EPERM))
    fd.Reset(openat(folder.get(), below.c_str(), kOpenFlags));
  return RegularOnly(std::move(fd));
}

std::string FileKeeper::KeyOf(const MappingInfo& mapping) {
  return absl::StrCat(mapping.is_file ? 0 : mapping.pid, "\n", mapping.name, "\n", mapping.build_id);
}

void FileKeeper::Note(const MappingInfo& mapping) {
  const bool perf_map = !mapping.is_file && mapping.pid != 0;
  if (!perf_map && (!mapping.is_file || !absl::StartsWith(mapping.name, "/"))) return;
  const std::string key = KeyOf(mapping);
  {
    absl::MutexLock lock(&mutex_);
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (it->key != key) continue;
      it->used = absl::Now();
      entries_.splice(entries_.begin(), entries_, it);
      return;
    }
  }
  UniqueFd fd;
  if (perf_map) {
    std::string where, problem;
    fd = OpenPerfMap(root_, mapping.pid, &where, &problem);
  } else {
    ForEachCandidate(root_, {}, true, mapping, UniqueFd(), [&fd](Candidate candidate) {
      fd = std::move(candidate.fd);
      return true;
    });
  }
  if (!fd.valid()) return;
  absl::MutexLock lock(&mutex_);
  entries_.push_front({key, std::move(fd), absl::Now()});
  if (entries_.size() > max_files_) entries_.pop_back();
}

UniqueFd FileKeeper::Kept(const MappingInfo& mapping) {
  const std::string key = KeyOf(mapping);
  absl::MutexLock lock(&mutex_);
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->key != key) continue;
    it->used = absl::Now();
    entries_.splice(entries_.begin(), entries_, it);
    return UniqueFd(fcntl(it->fd.get(), F_DUPFD_CLOEXEC, 0));
  }
  return UniqueFd();
}

void FileKeeper::Expire() {
  const absl::Time oldest = absl::Now() - max_age_;
  absl::MutexLock lock(&mutex_);
  while (!entries_.empty() && entries_.back().used < oldest) entries_.pop_back();
}

size_t FileKeeper::size() const {
  absl::MutexLock lock(&mutex_);
  return entries_.size();
}

void ForEachCandidate(const std::string& root, const std::vector<std::string>& symbol_roots, bool live,
                      const MappingInfo& mapping, UniqueFd kept,
                      const std::function<bool(Candidate)>& visit) {
  const std::string name(absl::StripSuffix(mapping.name, " (deleted)"));
  if (kept.valid() && visit({absl::StrCat(name, " (kept open)"), root, std::move(kept)})) return;
  for (const std::string& folder : symbol_roots) {
    UniqueFd fd = OpenBelow(folder, name);
    if (fd.valid() && visit({absl::StrCat(folder, name), folder, std::move(fd)})) return;
  }
  const size_t processes = live ? std::min(mapping.pids.size(), kMaxProcesses) : 0;
  // What is at the path of a deleted file by now is another one; only a build id could tell that it is not.
  if (!mapping.deleted || !mapping.build_id.empty()) {
    for (size_t i = 0; i < processes; ++i) {
      const std::string folder = absl::StrCat(root, "/proc/", mapping.pids[i], "/root");
      UniqueFd fd = OpenBelow(folder, name);
      if (fd.valid() && visit({folder + name, folder, std::move(fd)})) return;
    }
    UniqueFd fd = OpenBelow(root, name);
    if (fd.valid() && visit({root + name, root, std::move(fd)})) return;
  }
  for (size_t i = 0; i < processes; ++i) {
    if (VisitDeleted(root, mapping.pids[i], name, visit)) return;
  }
}

UniqueFd OpenPerfMap(const std::string& root, uint32_t pid, std::string* where, std::string* problem) {
  const ProcessStatus process = StatusOf(root, pid);
  if (!process.known) {
    *problem = absl::StrCat("process ", pid, " has ended");
    return UniqueFd();
  }
  const std::string folder = absl::StrCat(root, "/proc/", pid, "/root");
  const std::string path = absl::StrCat("/tmp/perf-", process.inner_pid, ".map");
  *where = folder + path;
  UniqueFd fd = OpenBelow(folder, path);
  if (!fd.valid()) {
    *problem = absl::StrCat("generated code without ", path, " (a JIT compiler writes one when told to)");
    return fd;
  }
  struct stat status;
  if (fstat(fd.get(), &status) != 0 || (status.st_uid != 0 && status.st_uid != process.uid)) {
    *problem = absl::StrCat(*where, " belongs to another user than process ", pid, ": not trusted");
    fd.Reset(-1);
  }
  return fd;
}

}  // namespace xenprof::symbols
