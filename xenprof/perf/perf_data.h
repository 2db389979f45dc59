// Reads perf.data files as `perf record` writes them. Layout:
// tools/perf/Documentation/perf.data-file-format.txt of the kernel; perf_event_attr and records:
// include/uapi/linux/perf_event.h.
#ifndef XENPROF_PERF_PERF_DATA_H_
#define XENPROF_PERF_PERF_DATA_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "xenprof/perf/record.h"

namespace xenprof::perf {

// Record types perf itself adds (enum perf_user_event_type); they carry no sample id fields.
inline constexpr uint32_t kFirstUserRecordType = 64;
inline constexpr uint32_t kRecordSample = 9;
inline constexpr uint32_t kRecordFinishedRound = 68;

// One event of the recording: its perf_event_attr as far as a reader needs it.
struct PerfEvent {
  std::string name;   // as perf calls it, "cycles:HG"; made up from type and config when the file has no name
  uint32_t type = 0;  // perf_type_id or a PMU's number
  uint64_t config = 0;
  uint64_t frequency_hz = 0;  // 0 when a fixed period was used
  uint64_t period = 0;        // 0 when a frequency was used, or the event only counts
  uint16_t max_stack = 0;     // 0: the kernel's default of the time
  bool exclude_kernel = false;
  bool exclude_user = false;
  bool exclude_hypervisor = false;
  bool exclude_host = false;
  bool exclude_guest = false;
  std::optional<int32_t> clock_id;  // set when another clock than perf's own was asked for
  RecordLayout layout;
  std::vector<uint64_t> ids;

  // Its samples tell where the CPU was: not the dummy that only carries sideband records, nor a counter.
  bool samples_addresses() const;
  // PERF_TYPE_SOFTWARE's cpu-clock or task-clock: a timer of the kernel, no PMU.
  bool is_software_clock() const;
  // Without terms and modifiers: "cycles" for "cycles:HG", "cpu-clock" for "cpu-clock/call-graph=fp/".
  std::string plain_name() const;
};

struct FileBuildId {
  uint32_t pid = 0;  // ~0 for the host's kernel
  CpuMode mode = CpuMode::kUnknown;
  std::string build_id;  // raw bytes
  std::string file_name;
};

// CLOCK_DATA: one instant on the samples' clock and on the wall clock, both in nanoseconds.
struct ClockReference {
  int32_t clock_id = 0;
  uint64_t wall_clock_ns = 0;
  uint64_t clock_ns = 0;
};

// What the feature sections tell. Strings are empty and numbers 0 where the file does not say.
struct PerfDataFeatures {
  std::string hostname;
  std::string os_release;
  std::string perf_version;
  std::string machine;
  std::string cpu_description;
  uint32_t cpus_available = 0;
  uint32_t cpus_online = 0;
  std::vector<std::string> command_line;
  uint64_t first_sample_ns = 0;
  uint64_t last_sample_ns = 0;
  std::optional<ClockReference> clock;
  bool compressed = false;
  std::vector<FileBuildId> build_ids;
};

// One record of the data section, decompressed.
struct DataRecord {
  absl::Span<const uint8_t> bytes;  // whole, 8-byte aligned; valid until the next call of Next
  uint32_t type = 0;
  const PerfEvent* event =
      nullptr;          // whose layout it has; null for perf's own records and where nothing tells
  uint64_t offset = 0;  // in the file; of the compressed record it came in, if it did

  // The record names an event by an id this file does not have. A sample then has no `event`.
  bool unknown_id = false;
};

struct PerfDataOptions {
  // Limit for unpacking a file that is itself compressed (.xz, .gz, .zst).
  uint64_t max_unpacked_bytes = uint64_t{64} << 30;
  // Where such a file, or one read from a pipe, is put while it is read; empty: $TMPDIR, else /var/tmp. The
  // file has no name there and is gone with the reader.
  std::string temporary_folder;
};

// A perf.data file, of either mode ("file" with sections, "pipe" with everything as records). Holds a window
// of it, not the whole. Errors read "FILE: offset N: what". Not thread safe.
class PerfDataFile {
 public:
  // `path` may be "-" (standard input), a folder made by `perf record --kcore` or `--threads`, or a file
  // compressed as a whole. Errors: what the system says, InvalidArgument for what is no perf.data or one of a
  // kind not handled (version 1, other byte order, events whose records cannot be told apart), DataLoss for
  // damage in the header.
  static absl::StatusOr<std::unique_ptr<PerfDataFile>> Open(const std::string& path,
                                                            const PerfDataOptions& options = {});
  // Takes the descriptor over. `name` stands for the file in errors.
  static absl::StatusOr<std::unique_ptr<PerfDataFile>> FromDescriptor(int fd, const std::string& name,
                                                                      const PerfDataOptions& options = {});
  virtual ~PerfDataFile() = default;

  // In pipe mode both grow while records are read, and are complete after the first pass. Events never move.
  virtual const std::vector<std::unique_ptr<PerfEvent>>& events() const = 0;
  virtual const PerfDataFeatures& features() const = 0;

  // The next record; false at the end. Records are in the order of the file, which is that of time only
  // roughly. Damage in the data ends it early and is told by problems(), so that what came before can be
  // used. Records that only carry header data (attributes, features, build ids) are taken in and handed out
  // as well. Fails only when reading fails.
  virtual absl::StatusOr<bool> Next(DataRecord* record) = 0;
  // Back to the first record.
  virtual void Rewind() = 0;

  // What is missing or was skipped, one sentence each, "FILE: offset N: what" where there is an offset.
  virtual const std::vector<std::string>& problems() const = 0;
  // perf record did not end properly: sizes and features are missing.
  virtual bool unfinished() const = 0;
  virtual bool pipe_mode() const = 0;
  virtual uint64_t file_bytes() const = 0;  // uncompressed
  // When the file was last written, seconds since 1970; 0 when it came through a pipe.
  virtual int64_t modified_unix_seconds() const = 0;
  virtual const std::string& name() const = 0;
};

}  // namespace xenprof::perf

#endif  // XENPROF_PERF_PERF_DATA_H_
