// perf_event records to samples and sideband events. Layouts: include/uapi/linux/perf_event.h, "enum
// perf_event_type".
#ifndef XENPROF_PERF_RECORD_H_
#define XENPROF_PERF_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace xenprof::perf {

// struct perf_event_header.
struct RecordHeader {
  uint32_t type;
  uint16_t misc;
  uint16_t size;  // bytes, header included
};
static_assert(sizeof(RecordHeader) == 8);

// PERF_RECORD_MISC_CPUMODE_MASK and its values.
inline constexpr uint16_t kMiscCpuModeMask = 7;
enum class CpuMode : uint8_t {
  kUnknown = 0,
  kKernel = 1,
  kUser = 2,
  kHypervisor = 3,
  kGuestKernel = 4,
  kGuestUser = 5,
};

// Chain entries at or above PERF_CONTEXT_MAX are markers, not addresses.
inline constexpr uint64_t kContextMax = static_cast<uint64_t>(-4095);
inline constexpr uint64_t kContextHypervisor = static_cast<uint64_t>(-32);
inline constexpr uint64_t kContextKernel = static_cast<uint64_t>(-128);
inline constexpr uint64_t kContextUser = static_cast<uint64_t>(-512);
inline constexpr uint64_t kContextGuest = static_cast<uint64_t>(-2048);
inline constexpr uint64_t kContextGuestKernel = static_cast<uint64_t>(-2176);
inline constexpr uint64_t kContextGuestUser = static_cast<uint64_t>(-2560);

// PERF_SAMPLE_TIME.
inline constexpr uint64_t kSampleTime = 1 << 2;

// How the records of one event are laid out: the parts of perf_event_attr that decide it.
struct RecordLayout {
  uint64_t sample_type = 0;
  uint64_t read_format = 0;
  bool sample_id_all = false;
  uint64_t branch_sample_type = 0;
  uint64_t sample_regs_user = 0;
  uint64_t sample_regs_intr = 0;
};

// A PERF_RECORD_SAMPLE. `chain` points into the record.
struct Sample {
  uint64_t ip = 0;
  uint64_t time_ns = 0;
  uint64_t period = 0;
  uint64_t id = 0;
  uint32_t pid = 0;
  uint32_t tid = 0;
  uint32_t cpu = 0;  // ~0 when the record does not say
  CpuMode mode = CpuMode::kUnknown;
  // The instruction pointer among the registers interrupted (PERF_SAMPLE_REGS_INTR, x86-64), 0 when the
  // record has none. Only looked for where nothing of variable size lies between chain and registers.
  uint64_t interrupted_ip = 0;
  absl::Span<const uint64_t> chain;
};

// The fields PERF_SAMPLE_* put behind every other record when sample_id_all is set.
struct RecordIdentity {
  uint32_t pid = 0;
  uint32_t tid = 0;
  uint64_t time_ns = 0;
  uint64_t id = 0;
  uint32_t cpu = ~0u;
};

// Everything that is not a sample, decoded and owned: rare next to samples.
struct SidebandEvent {
  enum class Type : uint8_t {
    kMmap,  // address, length, page_offset, name; with inode or build_id
    kComm,  // name; exec
    kFork,  // pid/tid from parent_pid/parent_tid
    kExit,
    kKsymbol,      // address, length, name; unregister
    kLost,         // count
    kLostSamples,  // count
    kThrottle,
    kUnthrottle,
    kOther,    // a type that carries nothing we use (known to perf)
    kUnknown,  // a type this version does not know
  };
  Type type = Type::kOther;
  uint32_t record_type = 0;
  CpuMode mode = CpuMode::kUnknown;
  bool exec = false;        // kComm: by execve. kMmap: mapping is executable
  bool unregister = false;  // kKsymbol
  uint32_t pid = 0, tid = 0;
  uint32_t parent_pid = 0, parent_tid = 0;
  uint64_t time_ns = 0;
  uint32_t cpu = ~0u;
  uint64_t address = 0, length = 0, page_offset = 0;
  uint64_t count = 0;
  uint32_t device_major = 0, device_minor = 0;
  uint64_t inode = 0;
  std::string build_id;  // raw bytes, from MMAP2 with PERF_RECORD_MISC_MMAP_BUILD_ID
  std::string name;
};

// Splits the first record off `bytes`. Fails when fewer than 8 bytes are left, or the header's size is less
// than 8 or more than there is; the message names the offset relative to `base_offset`.
absl::Status CheckRecord(absl::Span<const uint8_t> bytes, uint64_t base_offset);

// `record` is one whole record, 8-byte aligned, its header's size checked. Fails, naming the field, when the
// record is too short for what its own counts claim.
absl::Status DecodeSample(absl::Span<const uint8_t> record, const RecordLayout& layout, Sample* sample);
absl::Status DecodeSideband(absl::Span<const uint8_t> record, const RecordLayout& layout,
                            SidebandEvent* event);

// The sample id fields at the end of a record that is no sample.
absl::Status DecodeIdentity(absl::Span<const uint8_t> record, const RecordLayout& layout,
                            RecordIdentity* identity);

// "MMAP2", "SAMPLE", ... or "type 99".
std::string RecordTypeName(uint32_t type);

}  // namespace xenprof::perf

#endif  // XENPROF_PERF_RECORD_H_
