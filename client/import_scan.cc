#include "client/import_scan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "xenprof/base/types.h"

namespace xenprof::client {
namespace {

using perf::CpuMode;
using perf::SidebandEvent;

constexpr size_t kMaxKernelAddresses = 4096;
constexpr uint32_t kKthreadd = 2;  // the parent of all kernel threads

bool IsMarker(uint64_t entry) { return entry >= perf::kContextMax; }

// xen-facts.md section 2, as far as it can be said before it is known whether cpumode can be trusted.
void LookAt(const perf::Sample& sample, EventScan* scan) {
  const bool guest_mode = sample.mode == CpuMode::kGuestKernel || sample.mode == CpuMode::kGuestUser;
  if (!IsHypervisorAddress(sample.ip)) {
    if (guest_mode) ++scan->guest_samples;
    if (sample.mode == CpuMode::kKernel) {
      for (uint64_t entry : sample.chain) {
        if (scan->kernel_addresses.size() >= kMaxKernelAddresses) break;
        if (!IsMarker(entry) && !IsUserAddress(entry)) scan->kernel_addresses.insert(entry);
      }
    }
    return;
  }
  // The run of Xen addresses that the kernel part begins with.
  uint64_t context = perf::kContextKernel;
  uint64_t first = 0;
  int frames = 0;
  for (uint64_t entry : sample.chain) {
    if (IsMarker(entry)) {
      if (frames > 0) break;
      context = entry;
      continue;
    }
    if (context != perf::kContextKernel || !IsHypervisorAddress(entry)) break;
    if (frames == 0) first = entry;
    if (++frames > 1) break;
  }
  // An HVM guest may use such addresses itself; its samples have no kernel part that says the same.
  if (guest_mode && (frames == 0 || first != sample.ip)) {
    ++scan->guest_samples;
    return;
  }
  ++scan->hypervisor_samples;
  // The leaf may be missing in the chain: then its first entry is a caller already.
  if (frames > 1 || (frames == 1 && first != sample.ip)) ++scan->caller_samples;
}

class Scanner {
 public:
  explicit Scanner(perf::PerfDataFile& file) : file_(file) {}

  absl::StatusOr<ImportScan> Run() {
    perf::DataRecord record;
    while (true) {
      absl::StatusOr<bool> got = file_.Next(&record);
      if (!got.ok()) return got.status();
      if (!*got) break;
      ++scan_.records;
      Take(record);
    }
    scan_.events.resize(file_.events().size());
    Finish();
    file_.Rewind();
    return std::move(scan_);
  }

 private:
  EventScan& ScanOf(const perf::PerfEvent* event) {
    if (event != last_event_) {
      const auto& events = file_.events();
      last_index_ = 0;
      while (events[last_index_].get() != event) ++last_index_;
      last_event_ = event;
      if (scan_.events.size() <= last_index_) scan_.events.resize(last_index_ + 1);
    }
    return scan_.events[last_index_];
  }

  void Stamp(uint64_t time_ns) {
    scan_.first_ns = std::min(scan_.first_ns, time_ns);
    if (time_ns >= scan_.last_ns) {
      scan_.last_ns = time_ns;
    } else {
      scan_.lateness_ns = std::max(scan_.lateness_ns, scan_.last_ns - time_ns);
    }
  }

  void Take(const perf::DataRecord& record) {
    if (record.type >= perf::kFirstUserRecordType) return;
    if (record.event == nullptr) {
      ++(record.unknown_id ? scan_.orphan_samples : scan_.bad_records);
      return;
    }
    const perf::RecordLayout& layout = record.event->layout;
    if (record.type == perf::kRecordSample) {
      perf::Sample sample;
      if (!perf::DecodeSample(record.bytes, layout, &sample).ok() || sample.time_ns >= kImportMaxTimeNs ||
          (sample.cpu != ~0u && sample.cpu >= kImportMaxCpus)) {
        ++scan_.bad_records;
        return;
      }
      EventScan& scan = ScanOf(record.event);
      ++scan.samples;
      if (sample.time_ns != 0) {
        scan.first_ns = std::min(scan.first_ns, sample.time_ns);
        scan.last_ns = std::max(scan.last_ns, sample.time_ns);
        Stamp(sample.time_ns);
      }
      if (sample.cpu == ~0u) {
        ++scan.without_cpu;
      } else {
        scan.cpus.insert(sample.cpu);
      }
      LookAt(sample, &scan);
      return;
    }
    SidebandEvent event;
    if (!perf::DecodeSideband(record.bytes, layout, &event).ok() || event.time_ns >= kImportMaxTimeNs) {
      ++scan_.bad_records;
      return;
    }
    if (event.time_ns != 0) {
      Stamp(event.time_ns);
    } else if (layout.sample_type & perf::kSampleTime) {
      TakeMadeUp(std::move(event));
    }
  }

  void TakeMadeUp(SidebandEvent event) {
    switch (event.type) {
      case SidebandEvent::Type::kFork:
        if (event.parent_pid == kKthreadd || event.pid == kKthreadd) kernel_threads_.insert(event.pid);
        break;
      case SidebandEvent::Type::kComm: {
        auto [known, added] = by_tid_.try_emplace(event.tid, scan_.processes.size());
        if (added) {
          scan_.processes.push_back({event.pid, event.tid, std::move(event.name), false});
        } else {
          scan_.processes[known->second].comm = std::move(event.name);
        }
        break;
      }
      case SidebandEvent::Type::kMmap:
        if (event.mode == CpuMode::kKernel) {
          if (event.length == 0 || event.length > UINT64_MAX - event.address) break;
          kernel_mappings_.push_back(std::move(event));
        } else if (event.mode == CpuMode::kUser) {
          scan_.mappings.push_back(std::move(event));
        }
        break;
      case SidebandEvent::Type::kKsymbol:
        scan_.kernel_symbols.push_back(std::move(event));
        break;
      default:
        break;
    }
  }

  void Finish() {
    const BuildIdTable build_ids(file_.features().build_ids);
    scan_.kernel_build_id = build_ids.kernel();
    for (ImportScan::Process& process : scan_.processes) {
      process.kernel_thread = kernel_threads_.contains(process.pid);
      // drivers/xen/xenbus starts both wherever the kernel runs on Xen, and nowhere else.
      if (process.kernel_thread && (process.comm == "xenwatch" || process.comm == "xenbus")) {
        scan_.xen_thread = process.comm;
      }
    }
    for (SidebandEvent& mapping : scan_.mappings) build_ids.Complete(&mapping);
    for (const SidebandEvent& mapping : kernel_mappings_) {
      merge::TextRange range;
      range.start = mapping.address;
      range.end = mapping.address + mapping.length;
      range.name = KernelTextName(mapping.name);
      range.build_id = mapping.build_id;
      if (range.build_id.empty()) {
        range.build_id =
            range.name == "[kernel]" ? build_ids.kernel() : build_ids.ForKernelFile(mapping.name);
      }
      if (range.name == "[kernel]" && scan_.kernel_build_id.empty()) scan_.kernel_build_id = range.build_id;
      scan_.kernel_text.push_back(std::move(range));
    }
  }

  perf::PerfDataFile& file_;
  ImportScan scan_;
  const perf::PerfEvent* last_event_ = nullptr;
  size_t last_index_ = 0;
  absl::flat_hash_set<uint32_t> kernel_threads_;
  absl::flat_hash_map<uint32_t, size_t> by_tid_;
  std::vector<SidebandEvent> kernel_mappings_;
};

}  // namespace

std::string KernelTextName(const std::string& perf_name) {
  absl::string_view name = perf_name;
  if (absl::StartsWith(name, "[kernel") || absl::StartsWith(name, "/proc/k") ||
      absl::StrContains(name, "vmlinu")) {
    return "[kernel]";
  }
  if (absl::StartsWith(name, "bpf_prog_") || absl::StartsWith(name, "[bpf")) return "[bpf]";
  name = name.substr(name.rfind('/') + 1);  // npos + 1 is 0
  name = name.substr(0, name.find(".ko"));
  if (absl::StartsWith(name, "[")) return std::string(name);
  std::string module = absl::StrCat("[", name, "]");
  std::replace(module.begin(), module.end(), '-', '_');
  return module;
}

BuildIdTable::BuildIdTable(const std::vector<perf::FileBuildId>& entries) {
  for (const perf::FileBuildId& entry : entries) {
    if (entry.mode == CpuMode::kUser) {
      user_.try_emplace(entry.file_name, entry.build_id);
    } else if (entry.mode == CpuMode::kKernel) {
      if (KernelTextName(entry.file_name) == "[kernel]") {
        if (kernel_.empty()) kernel_ = entry.build_id;
      } else {
        modules_.try_emplace(KernelTextName(entry.file_name), entry.build_id);
      }
    }
  }
}

void BuildIdTable::Complete(SidebandEvent* mmap) const {
  if (!mmap->build_id.empty()) return;
  const auto found = user_.find(mmap->name);
  if (found != user_.end()) mmap->build_id = found->second;
}

std::string BuildIdTable::ForKernelFile(const std::string& name) const {
  const auto found = modules_.find(KernelTextName(name));
  return found == modules_.end() ? "" : found->second;
}

absl::StatusOr<ImportScan> ScanPerfData(perf::PerfDataFile& file) { return Scanner(file).Run(); }

}  // namespace xenprof::client
