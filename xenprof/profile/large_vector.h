// A vector for arrays with an entry per stack node or sample.
#ifndef XENPROF_PROFILE_LARGE_VECTOR_H_
#define XENPROF_PROFILE_LARGE_VECTOR_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

namespace xenprof::profile {

// Large blocks in huge pages where the kernel has them: a fault for each 4 KiB was a fifth of the time of an
// export, more in a guest of a hypervisor. Small ones as ever, so that a short window of a chunk stays small.
template <typename T>
class HugePageAllocator {
 public:
  using value_type = T;
  HugePageAllocator() = default;
  template <typename U>
  HugePageAllocator(const HugePageAllocator<U>&) {
  }  // NOLINT(google-explicit-constructor): what allocators have

  T* allocate(size_t count) {
    if (count > static_cast<size_t>(-1) / 2 / sizeof(T)) throw std::bad_array_new_length();
    const size_t bytes = count * sizeof(T);
    const bool huge = bytes >= kLargeBytes;
    const size_t rounded = huge ? (bytes + kPageBytes - 1) / kPageBytes * kPageBytes : bytes;
    void* block = huge ? std::aligned_alloc(kPageBytes, rounded) : std::malloc(bytes);
    if (block == nullptr) throw std::bad_alloc();
    if (huge) (void)madvise(block, rounded, MADV_HUGEPAGE);  // advice: nothing depends on it
    return static_cast<T*>(block);
  }
  void deallocate(T* block, size_t) { std::free(block); }
  template <typename U>
  bool operator==(const HugePageAllocator<U>&) const {
    return true;
  }

 private:
  static constexpr size_t kPageBytes = size_t{2} << 20;
  static constexpr size_t kLargeBytes = size_t{4} << 20;
};

template <typename T>
using LargeVector = std::vector<T, HugePageAllocator<T>>;

}  // namespace xenprof::profile

#endif  // XENPROF_PROFILE_LARGE_VECTOR_H_
