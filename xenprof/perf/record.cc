#include "xenprof/perf/record.h"

#include <cstring>

#include "absl/numeric/bits.h"
#include "absl/strings/str_cat.h"

namespace xenprof::perf {
namespace {

// enum perf_event_sample_format.
constexpr uint64_t kSampleIp = 1 << 0;
constexpr uint64_t kSampleTid = 1 << 1;
constexpr uint64_t kSampleAddr = 1 << 3;
constexpr uint64_t kSampleRead = 1 << 4;
constexpr uint64_t kSampleCallchain = 1 << 5;
constexpr uint64_t kSampleId = 1 << 6;
constexpr uint64_t kSampleCpu = 1 << 7;
constexpr uint64_t kSamplePeriod = 1 << 8;
constexpr uint64_t kSampleStreamId = 1 << 9;
constexpr uint64_t kSampleIdentifier = 1 << 16;
constexpr uint64_t kSampleRegsIntr = 1 << 18;
// What lies between the chain and those registers: raw data, branches, user registers and stack, weight, data
// source, transaction, weight structure.
constexpr uint64_t kSampleBetween = 0x3f << 10 | 1 << 17 | 1 << 24;

// What xenprofd asks for, but on a Xen without a PMU: the fields stand at fixed places.
constexpr uint64_t kSampleUsual = kSampleIp | kSampleTid | kSampleTime | kSampleCallchain;
constexpr size_t kUsualBytes = 40;  // up to the chain's first entry

// PERF_REG_X86_IP of arch/x86/include/uapi/asm/perf_regs.h.
constexpr int kRegisterIp = 8;

// enum perf_event_read_format.
constexpr uint64_t kFormatTotalTimeEnabled = 1 << 0;
constexpr uint64_t kFormatTotalTimeRunning = 1 << 1;
constexpr uint64_t kFormatId = 1 << 2;
constexpr uint64_t kFormatGroup = 1 << 3;
constexpr uint64_t kFormatLost = 1 << 4;

// enum perf_event_type.
enum RecordType : uint32_t {
  kMmap = 1,
  kLost = 2,
  kComm = 3,
  kExit = 4,
  kThrottle = 5,
  kUnthrottle = 6,
  kFork = 7,
  kRead = 8,
  kSample = 9,
  kMmap2 = 10,
  kAux = 11,
  kItraceStart = 12,
  kLostSamples = 13,
  kSwitch = 14,
  kSwitchCpuWide = 15,
  kNamespaces = 16,
  kKsymbol = 17,
  kBpfEvent = 18,
  kCgroup = 19,
  kTextPoke = 20,
  kAuxOutputHwId = 21,
  kCallchainDeferred = 22,
};

constexpr uint16_t kMiscCommExec = 1 << 13;
constexpr uint16_t kMiscMmapData = 1 << 13;
constexpr uint16_t kMiscMmapBuildId = 1 << 14;
constexpr uint16_t kKsymbolUnregister = 1 << 0;
constexpr size_t kMaxBuildIdBytes = 20;

// A bounds-checked walk over the fields of one record. Everything in a record is at least 4-byte aligned, but
// nothing is taken on trust.
class Fields {
 public:
  Fields(absl::Span<const uint8_t> record, size_t begin)
      : data_(record.data()), at_(begin), end_(record.size()) {}

  size_t left() const { return end_ - at_; }
  bool U64(uint64_t* value) {
    if (left() < 8) return false;
    std::memcpy(value, data_ + at_, 8);
    at_ += 8;
    return true;
  }
  bool U32Pair(uint32_t* first, uint32_t* second) {
    if (left() < 8) return false;
    std::memcpy(first, data_ + at_, 4);
    std::memcpy(second, data_ + at_ + 4, 4);
    at_ += 8;
    return true;
  }
  bool Skip(uint64_t bytes) {
    if (left() < bytes) return false;
    at_ += bytes;
    return true;
  }
  const uint8_t* here() const { return data_ + at_; }

 private:
  const uint8_t* data_;
  size_t at_;
  size_t end_;
};

RecordHeader HeaderOf(absl::Span<const uint8_t> record) {
  RecordHeader header;
  std::memcpy(&header, record.data(), sizeof header);
  return header;
}

absl::Status TooShort(const RecordHeader& header, absl::string_view field) {
  return absl::DataLossError(
      absl::StrCat(RecordTypeName(header.type), " record of ", header.size, " bytes ends within ", field));
}

// Skips PERF_SAMPLE_READ's struct read_format.
bool SkipRead(Fields& fields, uint64_t format) {
  uint64_t first;
  if (!fields.U64(&first)) return false;
  const uint64_t times =
      8 * (((format & kFormatTotalTimeEnabled) != 0) + ((format & kFormatTotalTimeRunning) != 0));
  const uint64_t per_value = 8 * (((format & kFormatId) != 0) + ((format & kFormatLost) != 0));
  if ((format & kFormatGroup) == 0) return fields.Skip(times + per_value);
  if (!fields.Skip(times)) return false;
  if (first > fields.left() / (8 + per_value)) return false;
  return fields.Skip(first * (8 + per_value));
}

size_t IdentityBytes(const RecordLayout& layout) {
  if (!layout.sample_id_all) return 0;
  size_t fields = 0;
  for (uint64_t bit : {kSampleTid, kSampleTime, kSampleId, kSampleStreamId, kSampleCpu, kSampleIdentifier}) {
    if ((layout.sample_type & bit) != 0) ++fields;
  }
  return 8 * fields;
}

// A name that the kernel pads with zeros to 8 bytes; it ends where the identity fields begin.
bool TakeName(Fields& fields, size_t identity_bytes, std::string* name) {
  if (fields.left() < identity_bytes) return false;
  const size_t room = fields.left() - identity_bytes;
  name->assign(reinterpret_cast<const char*>(fields.here()),
               strnlen(reinterpret_cast<const char*>(fields.here()), room));
  return true;
}

}  // namespace

std::string RecordTypeName(uint32_t type) {
  static constexpr const char* kNames[] = {"type 0",
                                           "MMAP",
                                           "LOST",
                                           "COMM",
                                           "EXIT",
                                           "THROTTLE",
                                           "UNTHROTTLE",
                                           "FORK",
                                           "READ",
                                           "SAMPLE",
                                           "MMAP2",
                                           "AUX",
                                           "ITRACE_START",
                                           "LOST_SAMPLES",
                                           "SWITCH",
                                           "SWITCH_CPU_WIDE",
                                           "NAMESPACES",
                                           "KSYMBOL",
                                           "BPF_EVENT",
                                           "CGROUP",
                                           "TEXT_POKE",
                                           "AUX_OUTPUT_HW_ID",
                                           "CALLCHAIN_DEFERRED"};
  if (type < sizeof kNames / sizeof *kNames) return kNames[type];
  return absl::StrCat("type ", type);
}

absl::Status CheckRecord(absl::Span<const uint8_t> bytes, uint64_t base_offset) {
  if (bytes.size() < sizeof(RecordHeader)) {
    return absl::DataLossError(
        absl::StrCat("offset ", base_offset, ": ", bytes.size(), " bytes left, a record header has 8"));
  }
  const RecordHeader header = HeaderOf(bytes);
  if (header.size < sizeof(RecordHeader)) {
    return absl::DataLossError(absl::StrCat("offset ", base_offset, ": ", RecordTypeName(header.type),
                                            " record claims a size of ", header.size,
                                            ", less than its header"));
  }
  if (header.size > bytes.size()) {
    return absl::DataLossError(absl::StrCat("offset ", base_offset, ": ", RecordTypeName(header.type),
                                            " record claims ", header.size, " bytes where ", bytes.size(),
                                            " are left"));
  }
  return absl::OkStatus();
}

absl::Status DecodeSample(absl::Span<const uint8_t> record, const RecordLayout& layout, Sample* sample) {
  const RecordHeader header = HeaderOf(record);
  const uint64_t type = layout.sample_type;
  if (type == kSampleUsual && record.size() >= kUsualBytes) {
    uint64_t words[kUsualBytes / 8];  // header, ip, pid and tid, time, entries of the chain
    std::memcpy(words, record.data(), kUsualBytes);
    if (words[4] <= (record.size() - kUsualBytes) / 8) {
      *sample = Sample();
      sample->ip = words[1];
      std::memcpy(&sample->pid, &words[2], 4);
      std::memcpy(&sample->tid, reinterpret_cast<const char*>(&words[2]) + 4, 4);
      sample->time_ns = words[3];
      sample->cpu = ~0u;
      sample->mode = static_cast<CpuMode>(header.misc & kMiscCpuModeMask);
      sample->chain =
          absl::MakeConstSpan(reinterpret_cast<const uint64_t*>(record.data() + kUsualBytes), words[4]);
      return absl::OkStatus();
    }
  }
  Fields fields(record, sizeof header);
  uint64_t skipped;
  uint32_t reserved;
  // Every field is set, so that a caller may use one Sample again and again.
  sample->ip = sample->time_ns = sample->period = sample->id = sample->interrupted_ip = 0;
  sample->pid = sample->tid = 0;
  sample->cpu = ~0u;
  sample->mode = static_cast<CpuMode>(header.misc & kMiscCpuModeMask);
  sample->chain = {};

  if ((type & kSampleIdentifier) && !fields.U64(&sample->id)) return TooShort(header, "the identifier");
  if ((type & kSampleIp) && !fields.U64(&sample->ip)) return TooShort(header, "the ip");
  if ((type & kSampleTid) && !fields.U32Pair(&sample->pid, &sample->tid))
    return TooShort(header, "pid and tid");
  if ((type & kSampleTime) && !fields.U64(&sample->time_ns)) return TooShort(header, "the time");
  if ((type & kSampleAddr) && !fields.U64(&skipped)) return TooShort(header, "the address");
  if ((type & kSampleId) && !fields.U64(&sample->id)) return TooShort(header, "the id");
  if ((type & kSampleStreamId) && !fields.U64(&skipped)) return TooShort(header, "the stream id");
  if ((type & kSampleCpu) && !fields.U32Pair(&sample->cpu, &reserved)) return TooShort(header, "the cpu");
  if ((type & kSamplePeriod) && !fields.U64(&sample->period)) return TooShort(header, "the period");
  if ((type & kSampleRead) && !SkipRead(fields, layout.read_format))
    return TooShort(header, "the counter values");
  if (type & kSampleCallchain) {
    uint64_t count;
    if (!fields.U64(&count)) return TooShort(header, "the chain's length");
    if (count > fields.left() / 8) {
      return absl::DataLossError(absl::StrCat("SAMPLE record of ", header.size, " bytes claims a chain of ",
                                              count, " entries where ", fields.left() / 8, " fit"));
    }
    // Records are 8-byte aligned and every field before the chain is a multiple of 8.
    sample->chain = absl::MakeConstSpan(reinterpret_cast<const uint64_t*>(fields.here()), count);
    fields.Skip(8 * count);
  }
  if ((type & kSampleRegsIntr) && (type & kSampleBetween) == 0 &&
      (layout.sample_regs_intr >> kRegisterIp & 1) != 0) {
    uint64_t abi;  // enum perf_sample_regs_abi; 0: no registers follow
    if (!fields.U64(&abi)) return TooShort(header, "the registers");
    const uint64_t before = layout.sample_regs_intr & ((uint64_t{1} << kRegisterIp) - 1);
    if (abi != 0 && !(fields.Skip(8 * absl::popcount(before)) && fields.U64(&sample->interrupted_ip))) {
      return TooShort(header, "the registers");
    }
  }
  // What else follows (raw data, branches, other registers, stack copies) is not used.
  return absl::OkStatus();
}

absl::Status DecodeIdentity(absl::Span<const uint8_t> record, const RecordLayout& layout,
                            RecordIdentity* identity) {
  *identity = RecordIdentity();
  const size_t bytes = IdentityBytes(layout);
  if (bytes == 0) return absl::OkStatus();
  const RecordHeader header = HeaderOf(record);
  if (record.size() < sizeof header + bytes) return TooShort(header, "the sample id fields");
  Fields fields(record, record.size() - bytes);
  const uint64_t type = layout.sample_type;
  uint64_t skipped;
  uint32_t reserved;
  if (type & kSampleTid) fields.U32Pair(&identity->pid, &identity->tid);
  if (type & kSampleTime) fields.U64(&identity->time_ns);
  if (type & kSampleId) fields.U64(&identity->id);
  if (type & kSampleStreamId) fields.U64(&skipped);
  if (type & kSampleCpu) fields.U32Pair(&identity->cpu, &reserved);
  if (type & kSampleIdentifier) fields.U64(&identity->id);
  return absl::OkStatus();
}

absl::Status DecodeSideband(absl::Span<const uint8_t> record, const RecordLayout& layout,
                            SidebandEvent* event) {
  *event = SidebandEvent();
  const RecordHeader header = HeaderOf(record);
  event->record_type = header.type;
  event->mode = static_cast<CpuMode>(header.misc & kMiscCpuModeMask);
  RecordIdentity identity;
  if (absl::Status status = DecodeIdentity(record, layout, &identity); !status.ok()) return status;
  event->time_ns = identity.time_ns;
  event->cpu = identity.cpu;
  event->pid = identity.pid;
  event->tid = identity.tid;

  const size_t identity_bytes = IdentityBytes(layout);
  Fields fields(record, sizeof header);
  uint64_t skipped;
  uint32_t word;
  switch (header.type) {
    case kMmap:
      event->type = SidebandEvent::Type::kMmap;
      event->exec = (header.misc & kMiscMmapData) == 0;
      if (!fields.U32Pair(&event->pid, &event->tid) || !fields.U64(&event->address) ||
          !fields.U64(&event->length) || !fields.U64(&event->page_offset)) {
        return TooShort(header, "the mapping");
      }
      if (!TakeName(fields, identity_bytes, &event->name)) return TooShort(header, "the file name");
      return absl::OkStatus();
    case kMmap2: {
      event->type = SidebandEvent::Type::kMmap;
      if (!fields.U32Pair(&event->pid, &event->tid) || !fields.U64(&event->address) ||
          !fields.U64(&event->length) || !fields.U64(&event->page_offset) || fields.left() < 24 + 8) {
        return TooShort(header, "the mapping");
      }
      const uint8_t* id = fields.here();
      if (header.misc & kMiscMmapBuildId) {
        const size_t length = id[0];
        if (length > kMaxBuildIdBytes) {
          return absl::DataLossError(absl::StrCat("MMAP2 record claims a build id of ", length, " bytes"));
        }
        event->build_id.assign(reinterpret_cast<const char*>(id + 4), length);
      } else {
        std::memcpy(&event->device_major, id, 4);
        std::memcpy(&event->device_minor, id + 4, 4);
        std::memcpy(&event->inode, id + 8, 8);
      }
      fields.Skip(24);
      uint32_t protection = 0, flags = 0;
      fields.U32Pair(&protection, &flags);
      event->exec = (protection & 4 /* PROT_EXEC */) != 0;
      if (!TakeName(fields, identity_bytes, &event->name)) return TooShort(header, "the file name");
      return absl::OkStatus();
    }
    case kComm:
      event->type = SidebandEvent::Type::kComm;
      event->exec = (header.misc & kMiscCommExec) != 0;
      if (!fields.U32Pair(&event->pid, &event->tid)) return TooShort(header, "pid and tid");
      if (!TakeName(fields, identity_bytes, &event->name)) return TooShort(header, "the name");
      return absl::OkStatus();
    case kFork:
    case kExit:
      event->type = header.type == kFork ? SidebandEvent::Type::kFork : SidebandEvent::Type::kExit;
      if (!fields.U32Pair(&event->pid, &event->parent_pid) ||
          !fields.U32Pair(&event->tid, &event->parent_tid) || !fields.U64(&skipped)) {
        return TooShort(header, "the task ids");
      }
      if (identity.time_ns == 0) event->time_ns = skipped;
      return absl::OkStatus();
    case kLost:
      event->type = SidebandEvent::Type::kLost;
      if (!fields.U64(&skipped) || !fields.U64(&event->count)) return TooShort(header, "the count");
      return absl::OkStatus();
    case kLostSamples:
      event->type = SidebandEvent::Type::kLostSamples;
      if (!fields.U64(&event->count)) return TooShort(header, "the count");
      return absl::OkStatus();
    case kThrottle:
    case kUnthrottle:
      event->type =
          header.type == kThrottle ? SidebandEvent::Type::kThrottle : SidebandEvent::Type::kUnthrottle;
      if (!fields.U64(&skipped)) return TooShort(header, "the time");
      if (identity.time_ns == 0) event->time_ns = skipped;
      return absl::OkStatus();
    case kKsymbol:
      event->type = SidebandEvent::Type::kKsymbol;
      if (!fields.U64(&event->address) || fields.left() < 8) return TooShort(header, "the symbol");
      std::memcpy(&word, fields.here(), 4);
      event->length = word;
      uint16_t flags;
      std::memcpy(&flags, fields.here() + 6, 2);
      event->unregister = (flags & kKsymbolUnregister) != 0;
      fields.Skip(8);
      if (!TakeName(fields, identity_bytes, &event->name)) return TooShort(header, "the name");
      return absl::OkStatus();
    case kRead:
    case kAux:
    case kItraceStart:
    case kSwitch:
    case kSwitchCpuWide:
    case kNamespaces:
    case kBpfEvent:
    case kCgroup:
    case kTextPoke:
    case kAuxOutputHwId:
    case kCallchainDeferred:
      event->type = SidebandEvent::Type::kOther;
      return absl::OkStatus();
    default:
      event->type = SidebandEvent::Type::kUnknown;
      return absl::OkStatus();
  }
}

}  // namespace xenprof::perf
