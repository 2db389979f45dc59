// Writes perf.data files byte by byte, as tools/perf/Documentation/perf.data-file-format.txt lays them out.
#ifndef XENPROF_TESTS_UNIT_PERF_PERF_DATA_BUILDER_H_
#define XENPROF_TESTS_UNIT_PERF_PERF_DATA_BUILDER_H_

#include <linux/perf_event.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/unit/perf/record_builder.h"
#include "xenprof/perf/perf_data.h"

namespace xenprof::perf {

struct EventSpec {
  perf_event_attr attr = {};
  std::vector<uint64_t> ids;
  std::string name;
};

inline EventSpec MakeEvent(uint64_t sample_type, std::vector<uint64_t> ids, std::string name = "cycles") {
  EventSpec event;
  event.attr.size = sizeof event.attr;
  event.attr.sample_type = sample_type;
  event.attr.freq = 1;
  event.attr.sample_freq = 997;
  event.attr.sample_id_all = 1;
  event.ids = std::move(ids);
  event.name = std::move(name);
  return event;
}

// perf_header_string, padded to 64 bytes as perf does.
inline void AddHeaderString(BytesBuilder& b, const std::string& text) {
  std::string padded = text;
  padded.resize((text.size() + 64) / 64 * 64);
  b.U32(static_cast<uint32_t>(padded.size())).Text(padded);
}

inline std::vector<uint8_t> HeaderString(const std::string& text) {
  BytesBuilder b;
  AddHeaderString(b, text);
  return b.bytes();
}

inline std::vector<uint8_t> EventDescription(const std::vector<EventSpec>& events) {
  BytesBuilder b;
  b.U32(static_cast<uint32_t>(events.size())).U32(sizeof(perf_event_attr));
  for (const EventSpec& event : events) {
    b.Add(event.attr).U32(static_cast<uint32_t>(event.ids.size()));
    AddHeaderString(b, event.name);
    for (uint64_t id : event.ids) b.U64(id);
  }
  return b.bytes();
}

inline std::vector<uint8_t> BuildIdRecord(uint16_t misc, uint32_t pid, const std::string& id,
                                          const std::string& name) {
  RecordBuilder b(67, static_cast<uint16_t>(misc | 1 << 15));
  std::string padded = id;
  padded.resize(20);
  b.U32(pid).Text(padded).Add(static_cast<uint8_t>(id.size())).Add(uint8_t{0}).U16(0).PaddedText(name);
  return b.Done();
}

struct FileSpec {
  std::vector<EventSpec> events;
  std::vector<uint8_t> data;
  std::map<uint32_t, std::vector<uint8_t>> features;
};

inline std::vector<uint8_t> FileMode(const FileSpec& spec) {
  const uint64_t attr_bytes = sizeof(perf_event_attr) + 16;
  uint64_t ids_at = 104;
  uint64_t id_bytes = 0;
  for (const EventSpec& event : spec.events) id_bytes += 8 * event.ids.size();
  const uint64_t attrs_at = ids_at + id_bytes;
  const uint64_t data_at = attrs_at + attr_bytes * spec.events.size();

  BytesBuilder b;
  b.Text("PERFILE2").U64(104).U64(attr_bytes);
  b.U64(attrs_at).U64(attr_bytes * spec.events.size()).U64(data_at).U64(spec.data.size()).U64(0).U64(0);
  uint64_t bits[4] = {};
  for (const auto& [feature, bytes] : spec.features) bits[feature / 64] |= uint64_t{1} << (feature % 64);
  for (uint64_t word : bits) b.U64(word);
  for (const EventSpec& event : spec.events) {
    for (uint64_t id : event.ids) b.U64(id);
  }
  for (const EventSpec& event : spec.events) {
    b.Add(event.attr).U64(ids_at).U64(8 * event.ids.size());
    ids_at += 8 * event.ids.size();
  }
  b.Append(spec.data);
  uint64_t at = b.size() + 16 * spec.features.size();
  for (const auto& [feature, bytes] : spec.features) {
    b.U64(at).U64(bytes.size());
    at += bytes.size();
  }
  for (const auto& [feature, bytes] : spec.features) b.Append(bytes);
  return b.bytes();
}

inline std::vector<uint8_t> PipeMode(const FileSpec& spec) {
  BytesBuilder b;
  b.Text("PERFILE2").U64(16);
  for (const EventSpec& event : spec.events) {
    RecordBuilder record(64, 0);
    record.Add(event.attr);
    for (uint64_t id : event.ids) record.U64(id);
    b.Append(record.Done());
  }
  for (const auto& [feature, bytes] : spec.features) {
    RecordBuilder record(80, 0);
    record.U64(feature).Append(bytes).PadTo(8);
    b.Append(record.Done());
  }
  b.Append(spec.data);
  return b.bytes();
}

// A descriptor of an unnamed file that holds `bytes`.
inline int DescriptorOf(const std::vector<uint8_t>& bytes) {
  const int fd = memfd_create("perf.data", MFD_CLOEXEC);
  if (fd >= 0 && pwrite(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    close(fd);
    return -1;
  }
  return fd;
}

inline absl::StatusOr<std::unique_ptr<PerfDataFile>> OpenBytes(const std::vector<uint8_t>& bytes) {
  return PerfDataFile::FromDescriptor(DescriptorOf(bytes), "f.data");
}

// A record as a test compares it.
struct SeenRecord {
  std::vector<uint8_t> bytes;
  std::string event;  // name, empty: none
  bool unknown_id;
};

inline absl::StatusOr<std::vector<SeenRecord>> ReadAll(PerfDataFile& file) {
  std::vector<SeenRecord> seen;
  DataRecord record;
  while (true) {
    absl::StatusOr<bool> got = file.Next(&record);
    if (!got.ok()) return got.status();
    if (!*got) return seen;
    seen.push_back({std::vector<uint8_t>(record.bytes.begin(), record.bytes.end()),
                    record.event == nullptr ? "" : record.event->name, record.unknown_id});
  }
}

}  // namespace xenprof::perf

#endif  // XENPROF_TESTS_UNIT_PERF_PERF_DATA_BUILDER_H_
