// Writes perf_event records byte by byte, in the order of include/uapi/linux/perf_event.h ("enum
// perf_event_type"), so that tests state the layout a second time instead of asking the decoder.
#ifndef XENPROF_TESTS_UNIT_PERF_RECORD_BUILDER_H_
#define XENPROF_TESTS_UNIT_PERF_RECORD_BUILDER_H_

#include <linux/perf_event.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "xenprof/perf/record.h"

namespace xenprof::perf {

// Appends fields as they lie in memory.
class BytesBuilder {
 public:
  template <typename T>
  BytesBuilder& Add(T value) {
    const auto* raw = reinterpret_cast<const uint8_t*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof value);
    return *this;
  }
  BytesBuilder& U16(uint16_t value) { return Add(value); }
  BytesBuilder& U32(uint32_t value) { return Add(value); }
  BytesBuilder& U64(uint64_t value) { return Add(value); }
  BytesBuilder& Append(absl::Span<const uint8_t> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  BytesBuilder& Text(const std::string& text) {
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    return *this;
  }
  // Zeros up to a multiple of `multiple`; a text gets at least its terminator.
  BytesBuilder& PadTo(size_t multiple) {
    while (bytes_.size() % multiple != 0) bytes_.push_back(0);
    return *this;
  }
  BytesBuilder& PaddedText(const std::string& text) {
    Text(text);
    bytes_.push_back(0);
    return PadTo(8);
  }
  // Of a record: sets the size in its header.
  std::vector<uint8_t> Done() {
    const uint16_t size = static_cast<uint16_t>(bytes_.size());
    std::memcpy(bytes_.data() + 6, &size, sizeof size);
    return bytes_;
  }
  size_t size() const { return bytes_.size(); }
  std::vector<uint8_t>& bytes() { return bytes_; }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

// A record begins with its header.
class RecordBuilder : public BytesBuilder {
 public:
  RecordBuilder(uint32_t type, uint16_t misc) { U32(type).U16(misc).U16(0); }
};

// Values for every field a sample may have.
struct SampleFields {
  uint64_t identifier = 0x1d01, ip = 0xffffffff81000123, time = 1'000'000'007, addr = 0xadd4, id = 0x1d01,
           stream_id = 0x57, period = 4711;
  uint32_t pid = 42, tid = 43, cpu = 3;
  std::vector<uint64_t> read_values = {77};  // as many as read_format asks for, group counts first
  std::vector<uint64_t> chain = {kContextKernel, 0xffffffff81000123, 0xffffffff81000456, kContextUser,
                                 0x401000};
  std::vector<uint8_t> raw = {1, 2, 3, 4};
  std::vector<uint64_t> regs = {8, 9};  // as many as the mask has bits
  std::vector<uint8_t> stack = std::vector<uint8_t>(64, 0x5a);
};

// PERF_RECORD_SAMPLE of the given sample_type.
inline std::vector<uint8_t> BuildSample(uint64_t sample_type, uint16_t misc, const SampleFields& f) {
  RecordBuilder b(PERF_RECORD_SAMPLE, misc);
  if (sample_type & PERF_SAMPLE_IDENTIFIER) b.U64(f.identifier);
  if (sample_type & PERF_SAMPLE_IP) b.U64(f.ip);
  if (sample_type & PERF_SAMPLE_TID) b.U32(f.pid).U32(f.tid);
  if (sample_type & PERF_SAMPLE_TIME) b.U64(f.time);
  if (sample_type & PERF_SAMPLE_ADDR) b.U64(f.addr);
  if (sample_type & PERF_SAMPLE_ID) b.U64(f.id);
  if (sample_type & PERF_SAMPLE_STREAM_ID) b.U64(f.stream_id);
  if (sample_type & PERF_SAMPLE_CPU) b.U32(f.cpu).U32(0xdeadbeef);
  if (sample_type & PERF_SAMPLE_PERIOD) b.U64(f.period);
  if (sample_type & PERF_SAMPLE_READ) {
    for (uint64_t value : f.read_values) b.U64(value);
  }
  if (sample_type & PERF_SAMPLE_CALLCHAIN) {
    b.U64(f.chain.size());
    for (uint64_t entry : f.chain) b.U64(entry);
  }
  if (sample_type & PERF_SAMPLE_RAW) b.U32(static_cast<uint32_t>(f.raw.size())).Append(f.raw).PadTo(8);
  if (sample_type & PERF_SAMPLE_BRANCH_STACK) b.U64(1).U64(0x10).U64(0x20).U64(0);
  if (sample_type & PERF_SAMPLE_REGS_USER) {
    b.U64(PERF_SAMPLE_REGS_ABI_64);
    for (uint64_t reg : f.regs) b.U64(reg);
  }
  if (sample_type & PERF_SAMPLE_STACK_USER) b.U64(f.stack.size()).Append(f.stack).U64(f.stack.size());
  return b.Done();
}

// The sample id fields of all other records (struct sample_id).
inline void AddIdentity(BytesBuilder& b, uint64_t sample_type, const SampleFields& f) {
  if (sample_type & PERF_SAMPLE_TID) b.U32(f.pid).U32(f.tid);
  if (sample_type & PERF_SAMPLE_TIME) b.U64(f.time);
  if (sample_type & PERF_SAMPLE_ID) b.U64(f.id);
  if (sample_type & PERF_SAMPLE_STREAM_ID) b.U64(f.stream_id);
  if (sample_type & PERF_SAMPLE_CPU) b.U32(f.cpu).U32(0);
  if (sample_type & PERF_SAMPLE_IDENTIFIER) b.U64(f.identifier);
}

}  // namespace xenprof::perf

#endif  // XENPROF_TESTS_UNIT_PERF_RECORD_BUILDER_H_
