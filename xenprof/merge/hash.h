// A 128-bit hash of stacks, fast for runs of 64-bit words.
#ifndef XENPROF_MERGE_HASH_H_
#define XENPROF_MERGE_HASH_H_

#include <cstddef>
#include <cstdint>

namespace xenprof::merge {

struct Hash128 {
  uint64_t low, high;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

namespace hash_internal {
inline uint64_t Fold(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}
}  // namespace hash_internal

// Multiply-and-fold over two independent lanes. Not for use against an adversary who can choose addresses and
// see the seed; a process may only spoil the picture of itself.
inline Hash128 HashWords(const uint64_t* words, size_t count, uint64_t head, uint64_t seed) {
  using hash_internal::Fold;
  constexpr uint64_t kA = 0x9e3779b97f4a7c15, kB = 0xd6e8feb86659fd93, kC = 0xa0761d6478bd642f,
                     kD = 0xe7037ed1a0b428db;
  uint64_t x = Fold(seed ^ kA, head ^ kB);
  uint64_t y = Fold(seed ^ kC, head ^ kD) ^ count;
  size_t i = 0;
  for (; i + 2 <= count; i += 2) {
    x = Fold(x ^ words[i], kA ^ words[i + 1]);
    y = Fold(y ^ words[i + 1], kC ^ (words[i] << 1 | words[i] >> 63));
  }
  if (i < count) {
    x = Fold(x ^ words[i], kB);
    y = Fold(y ^ words[i], kD);
  }
  return {Fold(x ^ kD, kB), Fold(y ^ kB, kD)};
}

// Of this process, never 0.
uint64_t HashSeed();

}  // namespace xenprof::merge

#endif  // XENPROF_MERGE_HASH_H_
