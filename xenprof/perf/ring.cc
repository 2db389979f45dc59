#include "xenprof/perf/ring.h"

#include <algorithm>

namespace xenprof::perf {

Ring::Ring(perf_event_mmap_page* page, const uint8_t* data, uint64_t data_bytes)
    : page_(page), data_(data), mask_(data_bytes - 1), tail_(page->data_tail) {}

const uint8_t* Ring::Unwrap(uint64_t offset, uint64_t size) {
  if (scratch_ == nullptr) scratch_.reset(new uint64_t[kMaxRecordBytes / sizeof(uint64_t)]);
  uint8_t* copy = reinterpret_cast<uint8_t*>(scratch_.get());
  // A record longer than the ring is refused by Drain: `size` is at most what is available.
  const uint64_t first = std::min(size, data_bytes() - offset);
  memcpy(copy, data_ + offset, first);
  memcpy(copy + first, data_, size - first);
  return copy;
}

}  // namespace xenprof::perf
