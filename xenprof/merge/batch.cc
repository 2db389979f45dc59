#include "xenprof/merge/batch.h"

#include <algorithm>
#include <cstring>

#include "absl/hash/hash.h"
#include "xenprof/merge/hash.h"

namespace xenprof::merge {
namespace {

constexpr uint32_t kRecordSample = 9;  // PERF_RECORD_SAMPLE
constexpr size_t kSmallestTable = 256;
// A table that one busy batch has grown is not kept for the quiet ones after it.
constexpr size_t kLargestKeptTable = 1 << 15;

}  // namespace

uint64_t HashSeed() {
  // Abseil seeds its hash per process.
  static const uint64_t seed = absl::HashOf(uint64_t{0x78656e70726f66}) | 1;
  return seed;
}

void CpuBatch::Clear() {
  addresses.clear();
  stacks.clear();
  samples.clear();
  sideband.clear();
  drained_until_ns = 0;
  bad_records = unknown_records = shed_samples = 0;
  first_bad_record.clear();
}

BatchBuilder::BatchBuilder(uint32_t cpu, const MergeOptions& options)
    : options_(options), table_(kSmallestTable) {
  batch_.cpu = cpu;
}

BatchBuilder::~BatchBuilder() = default;

void BatchBuilder::SetOptions(const MergeOptions& options) { options_ = options; }

size_t BatchBuilder::bytes() const {
  return batch_.addresses.size() * sizeof(uint64_t) + batch_.stacks.size() * sizeof(RawStack) +
         batch_.samples.size() * sizeof(RawSample);
}

void BatchBuilder::AddRecord(absl::Span<const uint8_t> record, const perf::RecordLayout& layout) {
  perf::RecordHeader header;
  std::memcpy(&header, record.data(), sizeof header);
  absl::Status status;
  if (header.type == kRecordSample) {
    perf::Sample sample;
    status = perf::DecodeSample(record, layout, &sample);
    if (status.ok()) {
      AddSample(sample);
      return;
    }
  } else {
    status = perf::DecodeSideband(record, layout, &event_);
    if (status.ok()) {
      if (event_.type == perf::SidebandEvent::Type::kUnknown) {
        ++batch_.unknown_records;
      } else if (event_.type != perf::SidebandEvent::Type::kOther) {
        batch_.sideband.push_back(std::move(event_));
      }
      return;
    }
  }
  if (batch_.bad_records++ == 0) batch_.first_bad_record = std::string(status.message());
}

void BatchBuilder::AddSample(const perf::Sample& sample) {
  MergeStack(sample, options_, &scratch_);
  ++evidence_.samples;
  if (scratch_.hypervisor_frames > 0) {
    ++evidence_.hypervisor_samples;
    if (static_cast<uint32_t>(scratch_.hypervisor_frames) > evidence_.most_hypervisor_frames) {
      evidence_.most_hypervisor_frames = scratch_.hypervisor_frames;
    }
  } else if (scratch_.origin == Origin::kGuestKernel || scratch_.origin == Origin::kGuestUser) {
    ++evidence_.guest_samples;
  }
  batch_.samples.push_back({sample.time_ns, sample.pid, sample.tid, Intern(sample.pid)});
}

uint32_t BatchBuilder::Intern(uint32_t pid) {
  const uint32_t space = scratch_.user_frames > 0 && scratch_.origin != Origin::kGuestUser ? pid : 0;
  const int count = scratch_.size();
  const uint64_t head =
      static_cast<uint64_t>(scratch_.flags) << 28 | static_cast<uint64_t>(scratch_.origin) << 24 |
      static_cast<uint64_t>(scratch_.hypervisor_frames) << 16 |
      static_cast<uint64_t>(scratch_.kernel_frames) << 8 | static_cast<uint64_t>(scratch_.user_frames);
  const Hash128 hash = HashWords(scratch_.addresses, count, head, HashSeed());
  const size_t mask = table_.size() - 1;
  size_t slot = hash.low & mask;
  while (table_[slot].generation == generation_) {
    const RawStack& known = batch_.stacks[table_[slot].stack];
    if (known.hash[0] == hash.low && known.hash[1] == hash.high && known.pid == space)
      return table_[slot].stack;
    slot = (slot + 1) & mask;
  }
  const uint32_t id = static_cast<uint32_t>(batch_.stacks.size());
  table_[slot] = {generation_, id};
  RawStack stack;
  stack.first_address = static_cast<uint32_t>(batch_.addresses.size());
  stack.hypervisor_frames = static_cast<uint8_t>(scratch_.hypervisor_frames);
  stack.kernel_frames = static_cast<uint8_t>(scratch_.kernel_frames);
  stack.user_frames = static_cast<uint8_t>(scratch_.user_frames);
  stack.origin = scratch_.origin;
  stack.flags = scratch_.flags;
  stack.pid = space;
  stack.hash[0] = hash.low;
  stack.hash[1] = hash.high;
  batch_.stacks.push_back(stack);
  batch_.addresses.insert(batch_.addresses.end(), scratch_.addresses, scratch_.addresses + count);
  if (batch_.stacks.size() * 2 > table_.size()) GrowTable();
  return id;
}

void BatchBuilder::GrowTable() {
  std::vector<Slot> grown(table_.size() * 2);
  const size_t mask = grown.size() - 1;
  for (uint32_t id = 0; id < batch_.stacks.size(); ++id) {
    size_t slot = batch_.stacks[id].hash[0] & mask;
    while (grown[slot].generation == generation_) slot = (slot + 1) & mask;
    grown[slot] = {generation_, id};
  }
  table_ = std::move(grown);
}

CpuBatch BatchBuilder::Take(uint64_t drained_until_ns, CpuBatch recycled) {
  recycled.Clear();
  recycled.cpu = batch_.cpu;
  std::swap(recycled, batch_);
  recycled.drained_until_ns = drained_until_ns;
  if (table_.size() > kLargestKeptTable) {
    table_ = std::vector<Slot>(kSmallestTable);
    generation_ = 0;
  }
  if (++generation_ == 0) {
    // Wrapped: old entries would come alive again.
    std::fill(table_.begin(), table_.end(), Slot{0, 0});
    generation_ = 1;
  }
  return recycled;
}

}  // namespace xenprof::merge
