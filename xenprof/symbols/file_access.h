// Opening the files that were sampled, wherever they are by now: in another mount namespace, deleted, or
// replaced.
#ifndef XENPROF_SYMBOLS_FILE_ACCESS_H_
#define XENPROF_SYMBOLS_FILE_ACCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "xenprof/symbols/symbolizer.h"
#include "xenprof/symbols/unique_fd.h"

namespace xenprof::symbols {

// Opens `path` for reading as it is seen from inside the folder `root_folder` ("" for this process's own
// root): neither
// ".." nor an absolute symbolic link leaves it (openat2, RESOLVE_IN_ROOT; on kernels before 5.6, which lack
// it, the path is opened as it is). Regular files only; never blocks. Invalid with errno set when it cannot
// be had.
UniqueFd OpenBelow(const std::string& root_folder, absl::string_view path);

// One way to reach a file.
struct Candidate {
  std::string where;   // for people: "/proc/12/root/usr/bin/x"
  std::string folder;  // root of the namespace it was found in: where its debug files are looked for too
  UniqueFd fd;
};

// Descriptors of files that may be gone when their names are asked for. Thread-safe; bounded in number and
// age.
class FileKeeper {
 public:
  FileKeeper(std::string root, size_t max_files, absl::Duration max_age)
      : root_(std::move(root)), max_files_(max_files), max_age_(max_age) {}

  // Gets hold of the file or, for anonymous memory, of its process's perf map.
  void Note(const MappingInfo& mapping);

  // A duplicate of what was kept for this mapping; invalid when there is nothing.
  UniqueFd Kept(const MappingInfo& mapping);

  // Closes what nobody asked for or noted during the last `max_age`.
  void Expire();
  size_t size() const;

 private:
  struct Entry {
    std::string key;
    UniqueFd fd;
    absl::Time used;
  };
  static std::string KeyOf(const MappingInfo& mapping);

  const std::string root_;
  const size_t max_files_;
  const absl::Duration max_age_;
  mutable absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // most recently used first
};

// Every way to reach the mapping's file that exists now, best first: `kept`, `symbol_roots`, the root folders
// of processes that have it mapped, the path itself, then what deleted files leave in /proc/PID/map_files and
// /proc/PID/exe. With `live` false nothing of this machine's processes is used. Calls `visit` until it
// returns true.
void ForEachCandidate(const std::string& root, const std::vector<std::string>& symbol_roots, bool live,
                      const MappingInfo& mapping, UniqueFd kept, const std::function<bool(Candidate)>& visit);

// The perf map of process `pid` (below `root`/proc), as its JIT compiler wrote it in the process's own mount
// and pid namespaces. Taken only from a regular file that the process's user or root owns (as perf does). On
// failure invalid with `problem` set.
UniqueFd OpenPerfMap(const std::string& root, uint32_t pid, std::string* where, std::string* problem);

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_FILE_ACCESS_H_
