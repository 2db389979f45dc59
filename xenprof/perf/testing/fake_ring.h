// A perf ring in memory that writes as the kernel does (kernel/events/ring_buffer.c: __perf_output_begin),
// for tests and benchmarks of what reads rings.
#ifndef XENPROF_PERF_TESTING_FAKE_RING_H_
#define XENPROF_PERF_TESTING_FAKE_RING_H_

#include <linux/perf_event.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "xenprof/perf/ring.h"

namespace xenprof::perf::testing {

class FakeRing {
 public:
  // `data_bytes` is a power of two; writing begins at `position` (a multiple of 8), so that any offset can be
  // made to wrap.
  explicit FakeRing(uint64_t data_bytes, uint64_t position = 0)
      : page_(), data_(data_bytes / 8), mask_(data_bytes - 1), head_(position) {
    page_.data_head = page_.data_tail = position;
    page_.data_offset = 4096;
    page_.data_size = data_bytes;
  }
  FakeRing(const FakeRing&) = delete;
  FakeRing& operator=(const FakeRing&) = delete;

  // Writes and publishes one record. False when it does not fit: then it is counted, and a PERF_RECORD_LOST
  // with the sample id `lost_trailer` goes before the next record that fits.
  bool Write(absl::Span<const uint8_t> record) {
    const uint64_t lost_bytes = pending_lost_ > 0 ? 24 + lost_trailer_.size() : 0;
    const uint64_t tail = __atomic_load_n(&page_.data_tail, __ATOMIC_ACQUIRE);
    if (head_ + lost_bytes + record.size() - tail > mask_ + 1) {
      ++pending_lost_;
      ++total_lost_;
      return false;
    }
    if (pending_lost_ > 0) {
      std::vector<uint8_t> lost(24);
      const perf_event_header header = {PERF_RECORD_LOST, 0, static_cast<uint16_t>(lost_bytes)};
      const uint64_t id = 1;
      memcpy(lost.data(), &header, 8);
      memcpy(lost.data() + 8, &id, 8);
      memcpy(lost.data() + 16, &pending_lost_, 8);
      lost.insert(lost.end(), lost_trailer_.begin(), lost_trailer_.end());
      Copy(lost);
      pending_lost_ = 0;
    }
    Copy(record);
    Publish();
    return true;
  }

  // Any bytes at all, as a broken kernel might write them.
  void WriteRaw(absl::Span<const uint8_t> bytes) {
    Copy(bytes);
    Publish();
  }
  void SetHead(uint64_t head) {
    head_ = head;
    Publish();
  }

  perf_event_mmap_page* page() { return &page_; }
  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(data_.data()); }
  uint64_t data_bytes() const { return mask_ + 1; }
  uint64_t head() const { return head_; }
  uint64_t tail() const { return __atomic_load_n(&page_.data_tail, __ATOMIC_ACQUIRE); }
  uint64_t total_lost() const { return total_lost_; }
  void set_lost_trailer(std::vector<uint8_t> trailer) { lost_trailer_ = std::move(trailer); }
  Ring MakeRing() { return Ring(&page_, data(), data_bytes()); }

 private:
  void Copy(absl::Span<const uint8_t> bytes) {
    uint8_t* data = reinterpret_cast<uint8_t*>(data_.data());
    for (size_t done = 0; done < bytes.size();) {
      const uint64_t offset = head_ & mask_;
      const uint64_t part = std::min<uint64_t>(bytes.size() - done, mask_ + 1 - offset);
      memcpy(data + offset, bytes.data() + done, part);
      done += part;
      head_ += part;
    }
  }
  void Publish() { __atomic_store_n(&page_.data_head, head_, __ATOMIC_RELEASE); }

  perf_event_mmap_page page_;
  std::vector<uint64_t> data_;
  uint64_t mask_;
  uint64_t head_;
  uint64_t pending_lost_ = 0;
  uint64_t total_lost_ = 0;
  std::vector<uint8_t> lost_trailer_;
};

// A PERF_RECORD_SAMPLE of IP | TID | TIME | CALLCHAIN.
inline std::vector<uint8_t> SampleRecord(uint16_t misc, uint64_t ip, uint32_t pid, uint32_t tid,
                                         uint64_t time_ns, absl::Span<const uint64_t> chain) {
  std::vector<uint64_t> words = {0, ip, pid | static_cast<uint64_t>(tid) << 32, time_ns, chain.size()};
  words.insert(words.end(), chain.begin(), chain.end());
  const perf_event_header header = {PERF_RECORD_SAMPLE, misc, static_cast<uint16_t>(words.size() * 8)};
  memcpy(words.data(), &header, 8);
  std::vector<uint8_t> bytes(words.size() * 8);
  memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

// The sample id behind other records: TID | TIME.
inline std::vector<uint8_t> SampleId(uint32_t pid, uint32_t tid, uint64_t time_ns) {
  const uint64_t words[2] = {pid | static_cast<uint64_t>(tid) << 32, time_ns};
  std::vector<uint8_t> bytes(sizeof(words));
  memcpy(bytes.data(), words, sizeof(words));
  return bytes;
}

// A PERF_RECORD_COMM with sample id.
inline std::vector<uint8_t> CommRecord(uint32_t pid, uint32_t tid, const std::string& comm, uint64_t time_ns,
                                       bool exec = false) {
  std::vector<uint8_t> bytes(16 + (comm.size() / 8 + 1) * 8);
  const std::vector<uint8_t> id = SampleId(pid, tid, time_ns);
  const perf_event_header header = {PERF_RECORD_COMM,
                                    static_cast<uint16_t>(exec ? PERF_RECORD_MISC_COMM_EXEC : 0),
                                    static_cast<uint16_t>(bytes.size() + id.size())};
  memcpy(bytes.data(), &header, 8);
  memcpy(bytes.data() + 8, &pid, 4);
  memcpy(bytes.data() + 12, &tid, 4);
  memcpy(bytes.data() + 16, comm.data(), comm.size());
  bytes.insert(bytes.end(), id.begin(), id.end());
  return bytes;
}

}  // namespace xenprof::perf::testing

#endif  // XENPROF_PERF_TESTING_FAKE_RING_H_
