// Reads the ring buffer the kernel shares with a perf event: include/uapi/linux/perf_event.h, "struct
// perf_event_mmap_page" and the comment above its data_head.
#ifndef XENPROF_PERF_RING_H_
#define XENPROF_PERF_RING_H_

#include <linux/perf_event.h>

#include <cstdint>
#include <cstring>
#include <memory>

#include "absl/types/span.h"
#include "xenprof/perf/record.h"

namespace xenprof::perf {

struct DrainResult {
  uint64_t records = 0;
  uint64_t bytes = 0;        // handed on
  uint32_t bad_records = 0;  // whose length was a lie; what lay behind them up to the head was skipped
  uint64_t skipped_bytes = 0;
};

// One reader of one ring. Not thread safe; the kernel is the only other party.
class Ring {
 public:
  // The largest record: perf_event_header.size is 16 bits wide.
  static constexpr uint64_t kMaxRecordBytes = uint64_t{1} << 16;

  // `page` is the control page; `data` the ring behind it, `data_bytes` long (a power of two, at least 8).
  // Both stay mapped as long as this lives. Reading begins at the page's data_tail.
  Ring(perf_event_mmap_page* page, const uint8_t* data, uint64_t data_bytes);

  // Calls fn(absl::Span<const uint8_t> record) for every whole record there is, up to the head seen on entry:
  // never longer, however fast the kernel writes. Records are aligned to 8 bytes and valid only during the
  // call: most lie in the ring itself, one that wraps is in a copy. Space is given back as reading goes on.
  template <typename Fn>
  DrainResult Drain(Fn&& fn);

  // Bytes written and not yet read.
  uint64_t Pending() const { return LoadHead() - tail_; }
  uint64_t data_bytes() const { return mask_ + 1; }

 private:
  // How much is read before the kernel gets the space back: a store it polls costs a cache line's journey.
  static constexpr uint64_t kReleaseBytes = 64 << 10;

  uint64_t LoadHead() const {
    // Acquire: pairs with the kernel's barrier between writing records and publishing data_head, so that no
    // record is read before it was written.
    return __atomic_load_n(&page_->data_head, __ATOMIC_ACQUIRE);
  }
  void StoreTail() {
    // Release: the kernel reuses the space as soon as it sees the new tail, so all reads come before it.
    __atomic_store_n(&page_->data_tail, tail_, __ATOMIC_RELEASE);
  }
  // Copies `size` bytes that run over the end of the ring.
  const uint8_t* Unwrap(uint64_t offset, uint64_t size);

  perf_event_mmap_page* page_;
  const uint8_t* data_;
  uint64_t mask_;
  uint64_t tail_;  // ours: the page's could be written by others with access to the event
  // Not touched, hence not resident, until a record wraps.
  std::unique_ptr<uint64_t[]> scratch_;
};

template <typename Fn>
DrainResult Ring::Drain(Fn&& fn) {
  DrainResult result;
  const uint64_t head = LoadHead();
  if (head == tail_) return result;
  // A head that is behind, further ahead than the ring is long, or off the grid of 8 bytes: nothing in
  // between can be trusted.
  bool good = head - tail_ <= data_bytes() && (tail_ & 7) == 0;
  uint64_t unreleased = 0;
  while (good && tail_ != head) {
    const uint64_t offset = tail_ & mask_;
    const uint64_t available = head - tail_;
    RecordHeader header;
    // A header never wraps: record sizes are multiples of 8 and so is the ring's.
    good = available >= sizeof(header);
    if (!good) break;
    memcpy(&header, data_ + offset, sizeof(header));
    good = header.size >= sizeof(header) && (header.size & 7) == 0 && header.size <= available;
    if (!good) break;
    const uint8_t* record =
        offset + header.size <= data_bytes() ? data_ + offset : Unwrap(offset, header.size);
    fn(absl::Span<const uint8_t>(record, header.size));
    ++result.records;
    result.bytes += header.size;
    tail_ += header.size;
    unreleased += header.size;
    if (unreleased >= kReleaseBytes) {
      StoreTail();
      unreleased = 0;
    }
  }
  if (!good) {
    ++result.bad_records;
    result.skipped_bytes = head - tail_;
    tail_ = head;
  }
  StoreTail();
  return result;
}

}  // namespace xenprof::perf

#endif  // XENPROF_PERF_RING_H_
