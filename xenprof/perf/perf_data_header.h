// The header of a perf.data file: sections, event attributes, features. Used by the reader only.
#ifndef XENPROF_PERF_PERF_DATA_HEADER_H_
#define XENPROF_PERF_PERF_DATA_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "xenprof/perf/perf_data.h"

namespace xenprof::perf {

// A bounds-checked walk over bytes read from a file. After the first read that does not fit, everything
// fails.
class ByteCursor {
 public:
  explicit ByteCursor(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  bool Read(void* out, size_t size) {
    if (size > left()) return Fail();
    if (size > 0) std::memcpy(out, bytes_.data() + at_, size);  // an empty vector's data() may be null
    at_ += size;
    return true;
  }
  template <typename T>
  bool Number(T* value) {
    return Read(value, sizeof *value);
  }
  bool Skip(uint64_t size) {
    if (size > left()) return Fail();
    at_ += size;
    return true;
  }
  // perf_header_string: u32 length, then that many bytes with zeros at the end.
  bool String(std::string* value);

  size_t left() const { return failed_ ? 0 : bytes_.size() - at_; }
  size_t position() const { return at_; }
  bool failed() const { return failed_; }

 private:
  bool Fail() {
    failed_ = true;
    return false;
  }

  absl::Span<const uint8_t> bytes_;
  size_t at_ = 0;
  bool failed_ = false;
};

// Bits of the header's feature bitmap, and PERF_RECORD_HEADER_FEATURE's feat_id (enum in
// tools/perf/util/header.h).
enum Feature : uint32_t {
  kFeatureBuildId = 2,
  kFeatureHostname = 3,
  kFeatureOsRelease = 4,
  kFeatureVersion = 5,
  kFeatureArch = 6,
  kFeatureNrCpus = 7,
  kFeatureCpuDesc = 8,
  kFeatureCmdline = 11,
  kFeatureEventDesc = 12,
  kFeatureSampleTime = 21,
  kFeatureDirFormat = 24,
  kFeatureCompressed = 27,
  kFeatureClockData = 29,
};
inline constexpr uint32_t kFeatureBits = 256;
// What perf calls a feature, or "feature N".
std::string FeatureName(uint32_t feature);
// Whether ParseFeature looks at it.
bool IsFeatureUsed(uint32_t feature);

inline constexpr uint64_t kFirstAttrBytes = 64;  // PERF_ATTR_SIZE_VER0: no perf_event_attr is shorter

// The events of a file and which of them a record belongs to.
class EventTable {
 public:
  // `attr` is a perf_event_attr of any version as it lies in the file. InvalidArgument when its records could
  // not be told from the other events'.
  absl::Status Add(absl::Span<const uint8_t> attr, absl::Span<const uint64_t> ids);
  // EVENT_DESC: names by ids, else by order.
  void SetName(size_t index, absl::Span<const uint64_t> ids, const std::string& name);

  const std::vector<std::unique_ptr<PerfEvent>>& events() const { return events_; }

  // `record`: whole, its size checked, of the kernel's types. Null when there are no events, when the record
  // is too short to hold an id, or for a sample with an unknown id; `unknown_id` tells the latter.
  const PerfEvent* Find(absl::Span<const uint8_t> record, bool* unknown_id) const;

 private:
  std::vector<std::unique_ptr<PerfEvent>> events_;
  absl::flat_hash_map<uint64_t, const PerfEvent*> by_id_;
  // Where the id is, in 8-byte words: behind the header of a sample, and before the end of any other record;
  // -1: nowhere.
  int sample_id_word_ = -1;
  int other_id_word_ = -1;
};

// Takes in one feature section's bytes. DataLoss, naming the feature and the position in it, when it
// contradicts itself; what was read until then is kept.
absl::Status ParseFeature(uint32_t feature, absl::Span<const uint8_t> bytes, PerfDataFeatures* features,
                          EventTable* events);
// One build_id_event, as in the BUILD_ID section and as PERF_RECORD_HEADER_BUILD_ID.
absl::Status ParseBuildId(absl::Span<const uint8_t> record, PerfDataFeatures* features);

}  // namespace xenprof::perf

#endif  // XENPROF_PERF_PERF_DATA_HEADER_H_
