// The processes that live before the first event is seen: names, threads and executable mappings, out of
// /proc.
#ifndef DAEMON_PROC_SCAN_H_
#define DAEMON_PROC_SCAN_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "xenprof/perf/record.h"

namespace xenprof::daemon {

struct ProcScanOptions {
  std::string proc = "/proc";
  // Mappings carry the file's build id and neither device nor inode, as the kernel's own records do where it
  // knows PERF_RECORD_MISC_MMAP_BUILD_ID. Otherwise device and inode, as its records without that.
  bool build_ids = true;
  // The stamp of what is found: when the events were started. What /proc tells is at most as new as the
  // records that follow, and the same mapping told twice is one.
  uint64_t time_ns = 0;
};

struct ProcScanReport {
  uint64_t processes = 0;  // with memory of their own
  uint64_t kernel_threads = 0;
  uint64_t threads = 0;  // beyond the first of each process
  uint64_t mappings = 0;
  uint64_t unreadable = 0;  // processes whose maps could not be read for want of permission
};

// Fails only when `options.proc` cannot be listed; a process that ends while it is looked at is no error.
absl::StatusOr<ProcScanReport> ScanProcesses(
    const ProcScanOptions& options,
    const std::function<void(uint32_t pid, uint32_t tid, absl::string_view comm, bool kernel_thread)>&
        on_thread,
    const std::function<void(const perf::SidebandEvent& mmap)>& on_mapping);

// The GNU build id of the ELF file behind `fd`, raw; empty when it has none or is no ELF file. Reads a few
// KiB.
std::string BuildIdOfFile(int fd);

}  // namespace xenprof::daemon

#endif  // DAEMON_PROC_SCAN_H_
