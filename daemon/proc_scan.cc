#include "daemon/proc_scan.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "xenprof/base/framing.h"
#include "xenprof/symbols/kernel_symbols.h"

namespace xenprof::daemon {
namespace {

// PF_KTHREAD of include/linux/sched.h, as /proc/PID/stat shows the task's flags.
constexpr uint64_t kKernelThreadFlag = 0x00200000;

UniqueFd OpenAt(int folder, const char* path, int flags = O_RDONLY) {
  return UniqueFd(openat(folder, path, flags | O_CLOEXEC | O_NONBLOCK));
}

// The lines of a file of any length, through one buffer.
class LineReader {
 public:
  LineReader() : buffer_(64 << 10) {}

  void Open(int fd) {
    fd_ = fd;
    begin_ = end_ = 0;
    failed_ = done_ = false;
  }
  // False at the end. Lines longer than the buffer are cut.
  bool Next(absl::string_view* line) {
    while (true) {
      const char* start = buffer_.data() + begin_;
      if (const void* newline = memchr(start, '\n', end_ - begin_)) {
        const size_t size = static_cast<const char*>(newline) - start;
        *line = absl::string_view(start, size);
        begin_ += size + 1;
        return true;
      }
      if (done_ || end_ - begin_ == buffer_.size()) {
        if (begin_ == end_) return false;
        *line = absl::string_view(start, end_ - begin_);
        begin_ = end_ = 0;
        return true;
      }
      memmove(buffer_.data(), start, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
      const ssize_t size = read(fd_, buffer_.data() + end_, buffer_.size() - end_);
      if (size < 0 && errno == EINTR) continue;
      failed_ = size < 0;
      done_ = size <= 0;
      if (size > 0) end_ += static_cast<size_t>(size);
    }
  }
  bool failed() const { return failed_; }

 private:
  std::vector<char> buffer_;
  int fd_ = -1;
  size_t begin_ = 0, end_ = 0;
  bool failed_ = false, done_ = false;
};

std::string ReadSmall(int folder, const char* path) {
  UniqueFd fd = OpenAt(folder, path);
  char text[4096];
  const ssize_t size = fd.valid() ? read(fd.get(), text, sizeof(text)) : -1;
  return size > 0 ? std::string(text, static_cast<size_t>(size)) : std::string();
}

struct Stat {
  std::string comm;
  bool kernel_thread = false;
  uint64_t threads = 1;
};

// proc(5), /proc/PID/stat: the name is in parentheses and may hold any of them itself.
std::optional<Stat> ParseStat(absl::string_view text) {
  const size_t open = text.find('('), close = text.rfind(')');
  if (open == absl::string_view::npos || close == absl::string_view::npos || close < open)
    return std::nullopt;
  Stat stat;
  stat.comm = std::string(text.substr(open + 1, close - open - 1));
  // Field 3 follows; flags are field 9, num_threads field 20.
  uint64_t fields[18] = {};
  size_t count = 0;
  size_t at = close + 1;
  while (count < 18) {
    at = text.find_first_not_of(' ', at);
    if (at == absl::string_view::npos) return std::nullopt;
    const size_t end = std::min(text.find(' ', at), text.size());
    // Fields that are no numbers, or negative ones, are none of those wanted.
    std::from_chars(text.data() + at, text.data() + end, fields[count]);
    ++count;
    at = end;
  }
  stat.kernel_thread = (fields[6] & kKernelThreadFlag) != 0;
  stat.threads = fields[17];
  return stat;
}

struct MapsLine {
  uint64_t start = 0, end = 0, offset = 0, inode = 0;
  uint32_t major = 0, minor = 0;
  bool executable = false;
  absl::string_view path;
};

bool TakeNumber(absl::string_view* text, int base, char after, uint64_t* value) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *value, base);
  if (error != std::errc()) return false;
  text->remove_prefix(end - text->data());
  if (text->empty() || text->front() != after) return false;
  text->remove_prefix(1);
  return true;
}

// proc(5), /proc/PID/maps: "start-end perms offset major:minor inode   path".
bool ParseMapsLine(absl::string_view text, MapsLine* line) {
  uint64_t major, minor;
  if (!TakeNumber(&text, 16, '-', &line->start) || !TakeNumber(&text, 16, ' ', &line->end) ||
      text.size() < 5) {
    return false;
  }
  line->executable = text[2] == 'x';
  text.remove_prefix(5);
  if (!TakeNumber(&text, 16, ' ', &line->offset) || !TakeNumber(&text, 16, ':', &major) ||
      !TakeNumber(&text, 16, ' ', &minor)) {
    return false;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), line->inode);
  if (error != std::errc()) return false;
  text.remove_prefix(end - text.data());
  const size_t path = text.find_first_not_of(' ');
  line->path = path == absl::string_view::npos ? absl::string_view() : text.substr(path);
  line->major = static_cast<uint32_t>(major);
  line->minor = static_cast<uint32_t>(minor);
  return line->end > line->start;
}

class Scanner {
 public:
  Scanner(const ProcScanOptions& options,
          const std::function<void(uint32_t, uint32_t, absl::string_view, bool)>& on_thread,
          const std::function<void(const perf::SidebandEvent&)>& on_mapping)
      : options_(options), on_thread_(on_thread), on_mapping_(on_mapping) {}

  void Process(int proc, uint32_t pid) {
    UniqueFd folder = OpenAt(proc, absl::StrCat(pid).c_str(), O_RDONLY | O_DIRECTORY);
    if (!folder.valid()) return;
    const std::optional<Stat> stat = ParseStat(ReadSmall(folder.get(), "stat"));
    if (!stat.has_value()) return;
    on_thread_(pid, pid, stat->comm, stat->kernel_thread);
    if (stat->kernel_thread) {
      ++report_.kernel_threads;
      return;
    }
    ++report_.processes;
    if (stat->threads > 1) Threads(folder.get(), pid);
    Maps(folder.get(), pid);
  }
  const ProcScanReport& report() const { return report_; }

 private:
  void Threads(int folder, uint32_t pid) {
    UniqueFd tasks = OpenAt(folder, "task", O_RDONLY | O_DIRECTORY);
    if (!tasks.valid()) return;
    DIR* listing = fdopendir(dup(tasks.get()));
    if (listing == nullptr) return;
    while (const dirent* entry = readdir(listing)) {
      uint32_t tid;
      if (!absl::SimpleAtoi(entry->d_name, &tid) || tid == pid) continue;
      std::string comm = ReadSmall(tasks.get(), absl::StrCat(tid, "/comm").c_str());
      if (comm.empty()) continue;
      if (comm.back() == '\n') comm.pop_back();
      on_thread_(pid, tid, comm, false);
      ++report_.threads;
    }
    closedir(listing);
  }

  void Maps(int folder, uint32_t pid) {
    UniqueFd maps = OpenAt(folder, "maps");
    if (!maps.valid()) {
      if (errno == EACCES || errno == EPERM) ++report_.unreadable;
      return;
    }
    lines_.Open(maps.get());
    absl::string_view text;
    while (lines_.Next(&text)) {
      MapsLine line;
      // Not the vsyscall page: it is in the kernel's half.
      if (!ParseMapsLine(text, &line) || !line.executable || line.start >> 63 != 0) continue;
      perf::SidebandEvent mmap;
      mmap.type = perf::SidebandEvent::Type::kMmap;
      mmap.mode = perf::CpuMode::kUser;
      mmap.exec = true;
      mmap.pid = mmap.tid = pid;
      mmap.time_ns = options_.time_ns;
      mmap.address = line.start;
      mmap.length = line.end - line.start;
      mmap.page_offset = line.offset;
      // maps escapes a newline; records do not.
      mmap.name = absl::StrReplaceAll(line.path, {{"\\012", "\n"}});
      if (options_.build_ids && line.inode != 0) mmap.build_id = BuildId(folder, line);
      if (mmap.build_id.empty()) {
        mmap.device_major = line.major;
        mmap.device_minor = line.minor;
        mmap.inode = line.inode;
      }
      on_mapping_(mmap);
      ++report_.mappings;
    }
    if (lines_.failed() && (errno == EACCES || errno == EPERM)) ++report_.unreadable;
  }

  const std::string& BuildId(int folder, const MapsLine& line) {
    const std::pair<uint64_t, uint64_t> file(static_cast<uint64_t>(line.major) << 32 | line.minor,
                                             line.inode);
    auto [entry, added] = build_ids_.try_emplace(file);
    if (!added) return entry->second;
    // The mapped file itself, whatever its path leads to by now.
    char link[64];
    snprintf(link, sizeof(link), "map_files/%lx-%lx", static_cast<unsigned long>(line.start),
             static_cast<unsigned long>(line.end));
    UniqueFd fd = OpenAt(folder, link);
    if (!fd.valid()) fd = OpenAt(folder, absl::StrCat("root", line.path).c_str());
    if (fd.valid()) entry->second = BuildIdOfFile(fd.get());
    return entry->second;
  }

  const ProcScanOptions& options_;
  const std::function<void(uint32_t, uint32_t, absl::string_view, bool)>& on_thread_;
  const std::function<void(const perf::SidebandEvent&)>& on_mapping_;
  ProcScanReport report_;
  LineReader lines_;
  absl::flat_hash_map<std::pair<uint64_t, uint64_t>, std::string> build_ids_;
};

}  // namespace

std::string BuildIdOfFile(int fd) {
  constexpr size_t kMaxNotes = 16 << 10;
  alignas(8) char start[4096];
  const ssize_t size = pread(fd, start, sizeof(start), 0);
  Elf64_Ehdr header;
  if (size < static_cast<ssize_t>(sizeof(header))) return "";
  memcpy(&header, start, sizeof(header));
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_DATA] != ELFDATA2LSB) return "";
  uint64_t table, entry_bytes, count;
  const bool wide = header.e_ident[EI_CLASS] == ELFCLASS64;
  if (wide) {
    table = header.e_phoff;
    entry_bytes = sizeof(Elf64_Phdr);
    count = header.e_phnum;
    if (header.e_phentsize != entry_bytes) return "";
  } else {
    Elf32_Ehdr narrow;
    memcpy(&narrow, start, sizeof(narrow));
    table = narrow.e_phoff;
    entry_bytes = sizeof(Elf32_Phdr);
    count = narrow.e_phnum;
    if (narrow.e_phentsize != entry_bytes) return "";
  }
  count = std::min<uint64_t>(count, 256);
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t type, offset, bytes, align;
    char raw[sizeof(Elf64_Phdr)];
    if (pread(fd, raw, entry_bytes, static_cast<off_t>(table + i * entry_bytes)) !=
        static_cast<ssize_t>(entry_bytes)) {
      return "";
    }
    if (wide) {
      Elf64_Phdr segment;
      memcpy(&segment, raw, sizeof(segment));
      type = segment.p_type, offset = segment.p_offset, bytes = segment.p_filesz, align = segment.p_align;
    } else {
      Elf32_Phdr segment;
      memcpy(&segment, raw, sizeof(segment));
      type = segment.p_type, offset = segment.p_offset, bytes = segment.p_filesz, align = segment.p_align;
    }
    if (type != PT_NOTE) continue;
    std::string notes(std::min<uint64_t>(bytes, kMaxNotes), '\0');
    const ssize_t got = pread(fd, notes.data(), notes.size(), static_cast<off_t>(offset));
    if (got <= 0) continue;
    notes.resize(static_cast<size_t>(got));
    std::string id = symbols::BuildIdOfNotes(notes, align == 8 ? 8 : 4);
    if (!id.empty()) return id;
  }
  return "";
}

absl::StatusOr<ProcScanReport> ScanProcesses(
    const ProcScanOptions& options,
    const std::function<void(uint32_t pid, uint32_t tid, absl::string_view comm, bool kernel_thread)>&
        on_thread,
    const std::function<void(const perf::SidebandEvent& mmap)>& on_mapping) {
  DIR* listing = opendir(options.proc.c_str());
  if (listing == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot list ", options.proc, ": ", strerror(errno)));
  }
  auto scanner = std::make_unique<Scanner>(options, on_thread, on_mapping);
  while (const dirent* entry = readdir(listing)) {
    uint32_t pid;
    if (absl::SimpleAtoi(entry->d_name, &pid)) scanner->Process(dirfd(listing), pid);
  }
  closedir(listing);
  return scanner->report();
}

}  // namespace xenprof::daemon
