// perf_event_attr and which event a record belongs to.
#include <linux/perf_event.h>

#include <algorithm>
#include <bitset>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "xenprof/perf/perf_data.h"
#include "xenprof/perf/perf_data_header.h"

namespace xenprof::perf {
namespace {


int CountBits(uint64_t bits) { return static_cast<int>(std::bitset<64>(bits).count()); }

// perf's evsel__calc_id_pos rule, from the order of fields in perf_event.h.
int SampleIdWord(uint64_t sample_type) {
  if (sample_type & PERF_SAMPLE_IDENTIFIER) return 0;
  if (!(sample_type & PERF_SAMPLE_ID)) return -1;
  return CountBits(sample_type & (PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR));
}

int OtherIdWord(const RecordLayout& layout) {
  if (!layout.sample_id_all) return -1;
  if (layout.sample_type & PERF_SAMPLE_IDENTIFIER) return 1;
  if (!(layout.sample_type & PERF_SAMPLE_ID)) return -1;
  return 1 + CountBits(layout.sample_type & (PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_CPU));
}

// Names as `perf list` has them; null for what has none.
const char* NameOfGeneric(uint32_t type, uint64_t config) {
  static constexpr const char* kHardware[] = {
      "cycles",        "instructions", "cache-references",        "cache-misses",           "branches",
      "branch-misses", "bus-cycles",   "stalled-cycles-frontend", "stalled-cycles-backend", "ref-cycles"};
  static constexpr const char* kSoftware[] = {
      "cpu-clock",        "task-clock",   "page-faults",  "context-switches",
      "cpu-migrations",   "minor-faults", "major-faults", "alignment-faults",
      "emulation-faults", "dummy",        "bpf-output",   "cgroup-switches"};
  if (type == PERF_TYPE_HARDWARE) config &= 0xffffffff;  // the upper half is the PMU's number
  if (type == PERF_TYPE_HARDWARE && config < std::size(kHardware)) return kHardware[config];
  if (type == PERF_TYPE_SOFTWARE && config < std::size(kSoftware)) return kSoftware[config];
  return nullptr;
}

std::string NameFromConfig(uint32_t type, uint64_t config) {
  if (const char* name = NameOfGeneric(type, config)) return name;
  if (type == PERF_TYPE_RAW) return absl::StrFormat("r%x", config);
  return absl::StrFormat("type %u config %#x", type, config);
}

}  // namespace

bool PerfEvent::samples_addresses() const {
  if (type == PERF_TYPE_SOFTWARE && (config == PERF_COUNT_SW_DUMMY || config == PERF_COUNT_SW_BPF_OUTPUT))
    return false;
  return (frequency_hz != 0 || period != 0) && (layout.sample_type & PERF_SAMPLE_IP) != 0;
}

bool PerfEvent::is_software_clock() const {
  return type == PERF_TYPE_SOFTWARE &&
         (config == PERF_COUNT_SW_CPU_CLOCK || config == PERF_COUNT_SW_TASK_CLOCK);
}

std::string PerfEvent::plain_name() const {
  if (const char* generic = NameOfGeneric(type, config)) return generic;
  const size_t colon = name.rfind(':');
  // A tracepoint's colon is part of its name: "sched:sched_switch".
  if (type == PERF_TYPE_TRACEPOINT || colon == std::string::npos || colon == 0) return name;
  const absl::string_view modifiers = absl::string_view(name).substr(colon + 1);
  if (modifiers.find_first_not_of("ukhpPGHISDWeb") != absl::string_view::npos) return name;
  return name.substr(0, colon);
}

absl::Status EventTable::Add(absl::Span<const uint8_t> bytes, absl::Span<const uint64_t> ids) {
  if (bytes.size() < kFirstAttrBytes) {
    return absl::DataLossError(
        absl::StrCat("an event's attributes have ", bytes.size(), " bytes, less than ", kFirstAttrBytes));
  }
  perf_event_attr attr =
      {};  // newer fields than the file has stay 0; newer ones than we know are not looked at
  std::memcpy(&attr, bytes.data(), std::min(bytes.size(), sizeof attr));

  auto event = std::make_unique<PerfEvent>();
  event->type = attr.type;
  event->config = attr.config;
  event->frequency_hz = attr.freq ? attr.sample_freq : 0;
  event->period = attr.freq ? 0 : attr.sample_period;
  event->max_stack = attr.sample_max_stack;
  event->exclude_kernel = attr.exclude_kernel;
  event->exclude_user = attr.exclude_user;
  event->exclude_hypervisor = attr.exclude_hv;
  event->exclude_host = attr.exclude_host;
  event->exclude_guest = attr.exclude_guest;
  if (attr.use_clockid) event->clock_id = attr.clockid;
  event->layout.sample_type = attr.sample_type;
  event->layout.read_format = attr.read_format;
  event->layout.sample_id_all = attr.sample_id_all;
  event->layout.branch_sample_type = attr.branch_sample_type;
  event->layout.sample_regs_user = attr.sample_regs_user;
  event->layout.sample_regs_intr = attr.sample_regs_intr;
  event->name = NameFromConfig(attr.type, attr.config);
  event->ids.assign(ids.begin(), ids.end());

  const int sample_word = SampleIdWord(attr.sample_type);
  const int other_word = OtherIdWord(event->layout);
  if (events_.empty()) {
    sample_id_word_ = sample_word;
    other_id_word_ = other_word;
  } else if (sample_word < 0 || sample_word != sample_id_word_ || other_word != other_id_word_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "records of event ", events_.size() + 1, " (", event->name, ") cannot be told from those of ",
        events_.front()->name, ": their ids are missing or lie in different places (sample types ",
        absl::Hex(events_.front()->layout.sample_type), " and ", absl::Hex(attr.sample_type), ")"));
  }
  for (uint64_t id : ids) by_id_.try_emplace(id, event.get());
  events_.push_back(std::move(event));
  return absl::OkStatus();
}

void EventTable::SetName(size_t index, absl::Span<const uint64_t> ids, const std::string& name) {
  if (name.empty()) return;
  if (!ids.empty()) {
    const auto found = by_id_.find(ids.front());
    if (found == by_id_.end()) return;
    for (const auto& event : events_) {
      if (event.get() == found->second) event->name = name;
    }
  } else if (index < events_.size()) {
    events_[index]->name = name;
  }
}

const PerfEvent* EventTable::Find(absl::Span<const uint8_t> record, bool* unknown_id) const {
  *unknown_id = false;
  if (events_.empty()) return nullptr;
  const PerfEvent* first = events_.front().get();
  if (events_.size() == 1) return first;

  RecordHeader header;
  std::memcpy(&header, record.data(), sizeof header);
  const bool is_sample = header.type == kRecordSample;
  size_t at;
  if (is_sample) {
    at = sizeof header + 8 * static_cast<size_t>(sample_id_word_);
    if (record.size() < at + 8) return nullptr;
  } else {
    if (other_id_word_ < 0) return first;
    const size_t from_end = 8 * static_cast<size_t>(other_id_word_);
    if (record.size() < sizeof header + from_end) return nullptr;
    at = record.size() - from_end;
  }
  uint64_t id;
  std::memcpy(&id, record.data() + at, sizeof id);
  if (id == 0) return first;  // made up by perf, not by the kernel
  const auto found = by_id_.find(id);
  if (found != by_id_.end()) return found->second;
  *unknown_id = true;
  return is_sample ? nullptr : first;
}

}  // namespace xenprof::perf
