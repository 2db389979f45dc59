// Any bytes as a perf.data file, through decoding and merging: nothing may crash, and a second pass over the
// file must find what the first one found.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "xenprof/merge/assembler.h"
#include "xenprof/merge/batch.h"
#include "xenprof/perf/perf_data.h"

namespace {

using namespace xenprof;  // NOLINT

// A few bytes may unpack to very many records.
constexpr uint64_t kMaxRecords = 20000;
constexpr uint32_t kMaxCpus = 8;

void Require(bool holds) {
  if (!holds) abort();
}

struct Seen {
  uint64_t records = 0, samples = 0, sum = 0;
  bool operator==(const Seen&) const = default;
};

bool Read(perf::PerfDataFile& file, std::map<uint32_t, std::unique_ptr<merge::BatchBuilder>>* builders,
          Seen* seen) {
  perf::DataRecord record;
  while (seen->records < kMaxRecords) {
    const auto got = file.Next(&record);
    if (!got.ok()) return false;
    if (!*got) break;
    ++seen->records;
    Require(record.bytes.size() >= sizeof(perf::RecordHeader));
    Require(reinterpret_cast<uintptr_t>(record.bytes.data()) % 8 == 0);
    seen->sum = seen->sum * 31 + record.bytes.size();
    for (uint8_t byte : record.bytes) seen->sum += byte;
    if (record.event == nullptr) continue;
    perf::RecordIdentity identity;
    perf::DecodeIdentity(record.bytes, record.event->layout, &identity).IgnoreError();
    uint32_t cpu = identity.cpu % kMaxCpus;
    if (record.type == perf::kRecordSample) {
      perf::Sample sample;
      if (!perf::DecodeSample(record.bytes, record.event->layout, &sample).ok()) continue;
      const auto* begin = reinterpret_cast<const uint8_t*>(sample.chain.data());
      Require(sample.chain.empty() ||
              (begin >= record.bytes.data() &&
               begin + sample.chain.size() * 8 <= record.bytes.data() + record.bytes.size()));
      ++seen->samples;
      cpu = sample.cpu % kMaxCpus;
    }
    auto& builder = (*builders)[cpu];
    if (builder == nullptr) builder = std::make_unique<merge::BatchBuilder>(cpu, merge::MergeOptions());
    builder->AddRecord(record.bytes, record.event->layout);
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = memfd_create("perf.data", MFD_CLOEXEC);
  if (fd < 0 || write(fd, data, size) != static_cast<ssize_t>(size)) abort();
  perf::PerfDataOptions options;
  options.max_unpacked_bytes = 1 << 20;
  auto file = perf::PerfDataFile::FromDescriptor(fd, "FILE", options);
  if (!file.ok()) return 0;

  std::map<uint32_t, std::unique_ptr<merge::BatchBuilder>> builders;
  Seen first, second;
  if (!Read(**file, &builders, &first)) return 0;
  merge::Assembler assembler;
  for (auto& [cpu, builder] : builders) assembler.AddBatch(builder->Take(1000));
  merge::Window window;
  // Half of it in the order of time, then whatever there is.
  assembler.Advance(uint64_t{1} << 40, &window);
  const uint64_t early = window.samples();
  assembler.Advance(UINT64_MAX, &window);
  Require(early <= window.samples() && window.samples() <= first.samples);

  (*file)->Rewind();
  builders.clear();
  Require(Read(**file, &builders, &second));
  // Pipe mode learns of events while it reads, so that more records are samples the second time.
  Require(first.records == second.records && first.sum == second.sum && first.samples <= second.samples);
  return 0;
}
