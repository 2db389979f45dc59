// A bounded queue between one producing and one consuming thread, without locks.
#ifndef DAEMON_SPSC_QUEUE_H_
#define DAEMON_SPSC_QUEUE_H_

#include <atomic>
#include <cstddef>
#include <utility>

namespace xenprof::daemon {

template <typename T, size_t kSlots>
class SpscQueue {
  static_assert((kSlots & (kSlots - 1)) == 0, "a power of two");

 public:
  // Producer. False when full; then `value` is left as it was.
  bool TryPush(T&& value) {
    const size_t head = head_.load(std::memory_order_relaxed);
    // Acquire: the consumer has moved out of the slot before it advanced the tail.
    if (head - tail_.load(std::memory_order_acquire) == kSlots) return false;
    slots_[head % kSlots] = std::move(value);
    // Release: the slot is filled before the consumer sees it.
    head_.store(head + 1, std::memory_order_release);
    return true;
  }
  // Consumer. False when empty.
  bool TryPop(T* value) {
    const size_t tail = tail_.load(std::memory_order_relaxed);
    if (head_.load(std::memory_order_acquire) == tail) return false;
    *value = std::move(slots_[tail % kSlots]);
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }
  // Exact for the producer when it says full, for the consumer when it says empty.
  size_t size() const {
    const size_t tail = tail_.load(std::memory_order_acquire);
    return head_.load(std::memory_order_acquire) - tail;
  }
  bool full() const { return size() >= kSlots; }

 private:
  // Apart, so that the two sides do not write to one cache line.
  alignas(64) std::atomic<size_t> head_ = 0;
  alignas(64) std::atomic<size_t> tail_ = 0;
  T slots_[kSlots];
};

}  // namespace xenprof::daemon

#endif  // DAEMON_SPSC_QUEUE_H_
