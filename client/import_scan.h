// The first pass over a perf.data: what must be known before its samples can be merged.
#ifndef CLIENT_IMPORT_SCAN_H_
#define CLIENT_IMPORT_SCAN_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "xenprof/merge/assembler.h"
#include "xenprof/perf/perf_data.h"
#include "xenprof/perf/record.h"

namespace xenprof::client {

// A record stamped from here on contradicts itself: half of the clock's range is 292 years.
inline constexpr uint64_t kImportMaxTimeNs = uint64_t{1} << 63;
// Linux has at most 8192 (CONFIG_NR_CPUS); a record of a greater CPU contradicts itself.
inline constexpr uint32_t kImportMaxCpus = 1 << 16;

// What the samples of one event showed.
struct EventScan {
  uint64_t samples = 0;
  uint64_t first_ns = UINT64_MAX, last_ns = 0;
  uint64_t hypervisor_samples = 0;  // that are surely Xen's
  uint64_t caller_samples = 0;      // of those, with a second Xen frame
  uint64_t guest_samples = 0;       // cpumode guest, not in Xen
  uint64_t without_cpu = 0;
  std::set<uint32_t> cpus;
  absl::flat_hash_set<uint64_t>
      kernel_addresses;  // some of those sampled in the kernel, a few thousand at most
};

struct ImportScan {
  std::vector<EventScan> events;  // as the file's
  uint64_t records = 0;
  uint64_t orphan_samples = 0;     // of an event the file does not have
  uint64_t bad_records = 0;        // contradict themselves
  uint64_t first_ns = UINT64_MAX;  // of all stamped records
  uint64_t last_ns = 0;
  // A record's stamp is at most this much earlier than the latest stamp before it in the file.
  uint64_t lateness_ns = 0;

  // From records without a stamp, which perf makes up for what was there before the recording began.
  struct Process {
    uint32_t pid = 0, tid = 0;
    std::string comm;
    bool kernel_thread = false;
  };
  std::vector<Process> processes;
  std::vector<perf::SidebandEvent> mappings;
  std::vector<perf::SidebandEvent> kernel_symbols;
  std::vector<merge::TextRange> kernel_text;
  std::string kernel_build_id;
  // A thread that only a kernel running on Xen has; empty: none seen.
  std::string xen_thread;
};

// Build ids of the header's table for files as mappings name them.
class BuildIdTable {
 public:
  explicit BuildIdTable(const std::vector<perf::FileBuildId>& entries);
  // Of the host's kernel, raw; empty when not known.
  const std::string& kernel() const { return kernel_; }
  // Puts in what an event lacks.
  void Complete(perf::SidebandEvent* mmap) const;
  std::string ForKernelFile(const std::string& name) const;

 private:
  std::string kernel_;
  absl::flat_hash_map<std::string, std::string> user_;
  absl::flat_hash_map<std::string, std::string> modules_;
};

// Reads `file` to its end and rewinds it. Fails as PerfDataFile::Next does.
absl::StatusOr<ImportScan> ScanPerfData(perf::PerfDataFile& file);

// "[kernel]" for the kernel's image, "[name]" for a module, by what perf calls their mapping.
std::string KernelTextName(const std::string& perf_name);

}  // namespace xenprof::client

#endif  // CLIENT_IMPORT_SCAN_H_
