#include "client/large_heap.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

constexpr uintptr_t kHugePageBytes = uintptr_t{2} << 20;
// Blocks below this seldom make the heap grow: not worth looking.
constexpr size_t kLargeBytes = size_t{64} << 10;

// How far the heap has been advised to be of huge pages; 0: not asked for.
std::atomic<uintptr_t> advised_end = 0;

// The C library's own switch for this (glibc.malloc.hugetlb) can only be set from outside the process.
void AdviseHeap() {
  const uintptr_t end = reinterpret_cast<uintptr_t>(sbrk(0)) / kHugePageBytes * kHugePageBytes;
  const uintptr_t start = advised_end.load(std::memory_order_relaxed);
  if (start == 0 || end <= start) return;
  advised_end.store(end, std::memory_order_relaxed);
  (void)madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);
}

}  // namespace

// All that is large comes this way: vectors, hash tables, protobuf's columns.
void* operator new(size_t bytes) {
  void* const block = std::malloc(bytes);
  if (block == nullptr) throw std::bad_alloc();
  if (bytes >= kLargeBytes) AdviseHeap();
  return block;
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }

namespace xenprof::client {

void UseLargeHeap() {
  constexpr int kStepBytes = 32 << 20, kKeepBytes = 1 << 30;
  // A block mapped by itself is given back when it is freed, and the next one faulted in anew.
  (void)mallopt(M_MMAP_MAX, 0);
  (void)mallopt(M_TRIM_THRESHOLD, kKeepBytes);
  (void)mallopt(M_TOP_PAD, kStepBytes);
  const uintptr_t end = reinterpret_cast<uintptr_t>(sbrk(0));
  advised_end.store((end + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes, std::memory_order_relaxed);
}

}  // namespace xenprof::client
