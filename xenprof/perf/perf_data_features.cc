// Feature sections of perf.data.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "xenprof/perf/perf_data_header.h"

namespace xenprof::perf {
namespace {

// PERF_RECORD_MISC_BUILD_ID_SIZE: the build id's size is in the record, else it is 20.
constexpr uint16_t kMiscBuildIdSize = 1 << 15;
constexpr size_t kBuildIdBytes = 20;
constexpr size_t kBuildIdEventBytes = sizeof(RecordHeader) + 4 + 24;  // before the file name

bool ReadStrings(ByteCursor& cursor, std::vector<std::string>* strings) {
  uint32_t count;
  if (!cursor.Number(&count)) return false;
  strings->clear();
  for (uint32_t i = 0; i < count; ++i) {
    std::string text;
    if (!cursor.String(&text)) return false;
    strings->push_back(std::move(text));
  }
  return true;
}

bool ReadEventDescription(ByteCursor& cursor, EventTable* events) {
  uint32_t count, attr_bytes;
  if (!cursor.Number(&count) || !cursor.Number(&attr_bytes)) return false;
  std::vector<uint64_t> ids;
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t id_count;
    std::string name;
    if (!cursor.Skip(attr_bytes) || !cursor.Number(&id_count) || !cursor.String(&name)) return false;
    if (id_count > cursor.left() / sizeof(uint64_t)) return cursor.Skip(UINT64_MAX);
    ids.resize(id_count);
    if (!cursor.Read(ids.data(), id_count * sizeof(uint64_t))) return false;
    events->SetName(i, ids, name);
  }
  return true;
}

bool ReadClock(ByteCursor& cursor, PerfDataFeatures* features) {
  uint32_t version;
  ClockReference clock;
  if (!cursor.Number(&version) || !cursor.Number(&clock.clock_id) || !cursor.Number(&clock.wall_clock_ns) ||
      !cursor.Number(&clock.clock_ns)) {
    return false;
  }
  if (version == 1) features->clock = clock;
  return true;
}

absl::Status ReadBuildIds(absl::Span<const uint8_t> bytes, PerfDataFeatures* features) {
  size_t at = 0;
  while (at < bytes.size()) {
    if (absl::Status status = CheckRecord(bytes.subspan(at), at); !status.ok()) return status;
    RecordHeader header;
    std::memcpy(&header, bytes.data() + at, sizeof header);
    if (absl::Status status = ParseBuildId(bytes.subspan(at, header.size), features); !status.ok()) {
      return absl::DataLossError(absl::StrCat("offset ", at, ": ", status.message()));
    }
    at += header.size;
  }
  return absl::OkStatus();
}

}  // namespace

bool ByteCursor::String(std::string* value) {
  uint32_t length;
  if (!Number(&length)) return false;
  if (length > left()) return Fail();
  const char* text = reinterpret_cast<const char*>(bytes_.data() + at_);
  value->assign(text, strnlen(text, length));
  at_ += length;
  return true;
}

std::string FeatureName(uint32_t feature) {
  static constexpr const char* kNames[] = {
      "RESERVED",        "TRACING_DATA", "BUILD_ID",     "HOSTNAME",     "OSRELEASE",
      "VERSION",         "ARCH",         "NRCPUS",       "CPUDESC",      "CPUID",
      "TOTAL_MEM",       "CMDLINE",      "EVENT_DESC",   "CPU_TOPOLOGY", "NUMA_TOPOLOGY",
      "BRANCH_STACK",    "PMU_MAPPINGS", "GROUP_DESC",   "AUXTRACE",     "STAT",
      "CACHE",           "SAMPLE_TIME",  "MEM_TOPOLOGY", "CLOCKID",      "DIR_FORMAT",
      "BPF_PROG_INFO",   "BPF_BTF",      "COMPRESSED",   "CPU_PMU_CAPS", "CLOCK_DATA",
      "HYBRID_TOPOLOGY", "PMU_CAPS"};
  if (feature < std::size(kNames)) return kNames[feature];
  return absl::StrCat("feature ", feature);
}

bool IsFeatureUsed(uint32_t feature) {
  switch (feature) {
    case kFeatureBuildId:
    case kFeatureHostname:
    case kFeatureOsRelease:
    case kFeatureVersion:
    case kFeatureArch:
    case kFeatureNrCpus:
    case kFeatureCpuDesc:
    case kFeatureCmdline:
    case kFeatureEventDesc:
    case kFeatureSampleTime:
    case kFeatureCompressed:
    case kFeatureClockData:
      return true;
    default:
      return false;
  }
}

absl::Status ParseBuildId(absl::Span<const uint8_t> record, PerfDataFeatures* features) {
  if (record.size() < kBuildIdEventBytes) {
    return absl::DataLossError(
        absl::StrCat("build id record of ", record.size(), " bytes ends within the build id"));
  }
  RecordHeader header;
  FileBuildId entry;
  std::memcpy(&header, record.data(), sizeof header);
  std::memcpy(&entry.pid, record.data() + sizeof header, sizeof entry.pid);
  const uint8_t* id = record.data() + sizeof header + sizeof entry.pid;
  const size_t size = header.misc & kMiscBuildIdSize ? id[kBuildIdBytes] : kBuildIdBytes;
  if (size > kBuildIdBytes) {
    return absl::DataLossError(absl::StrCat("build id record claims a build id of ", size, " bytes"));
  }
  entry.mode = static_cast<CpuMode>(header.misc & kMiscCpuModeMask);
  entry.build_id.assign(reinterpret_cast<const char*>(id), size);
  const char* file_name = reinterpret_cast<const char*>(record.data() + kBuildIdEventBytes);
  entry.file_name.assign(file_name, strnlen(file_name, record.size() - kBuildIdEventBytes));
  features->build_ids.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::Status ParseFeature(uint32_t feature, absl::Span<const uint8_t> bytes, PerfDataFeatures* features,
                          EventTable* events) {
  ByteCursor cursor(bytes);
  switch (feature) {
    case kFeatureBuildId: {
      absl::Status status = ReadBuildIds(bytes, features);
      return status.ok() ? status : absl::DataLossError(absl::StrCat("feature BUILD_ID: ", status.message()));
    }
    case kFeatureHostname:
      cursor.String(&features->hostname);
      break;
    case kFeatureOsRelease:
      cursor.String(&features->os_release);
      break;
    case kFeatureVersion:
      cursor.String(&features->perf_version);
      break;
    case kFeatureArch:
      cursor.String(&features->machine);
      break;
    case kFeatureCpuDesc:
      cursor.String(&features->cpu_description);
      break;
    case kFeatureNrCpus:
      if (cursor.Number(&features->cpus_available)) cursor.Number(&features->cpus_online);
      break;
    case kFeatureCmdline:
      ReadStrings(cursor, &features->command_line);
      break;
    case kFeatureEventDesc:
      ReadEventDescription(cursor, events);
      break;
    case kFeatureSampleTime:
      if (cursor.Number(&features->first_sample_ns)) cursor.Number(&features->last_sample_ns);
      break;
    case kFeatureCompressed:
      features->compressed = true;
      break;
    case kFeatureClockData:
      ReadClock(cursor, features);
      break;
    default:
      break;
  }
  if (!cursor.failed()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("feature ", FeatureName(feature), " of ", bytes.size(),
                                          " bytes ends within a field at byte ", cursor.position()));
}

}  // namespace xenprof::perf
