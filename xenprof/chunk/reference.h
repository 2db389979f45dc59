// References of proto/chunk.proto: ids in a column where most are either new or often used.
#ifndef XENPROF_CHUNK_REFERENCE_H_
#define XENPROF_CHUNK_REFERENCE_H_

#include <algorithm>
#include <cstdint>

namespace xenprof::chunk {

// One column, in order, starting at `first`: the id of the first entry its block adds.
class ReferenceCoder {
 public:
  explicit ReferenceCoder(uint32_t first) : highest_(int64_t{first} - 1) {}
  int32_t Encode(uint32_t id) {
    if (id <= highest_) return -static_cast<int32_t>(id);
    const int64_t above = id - highest_;
    highest_ = id;
    return static_cast<int32_t>(above);
  }

 private:
  int64_t highest_;
};

class ReferenceDecoder {
 public:
  explicit ReferenceDecoder(uint32_t first) : highest_(int64_t{first} - 1) {}
  // An id that no entry can have, 2^32 - 1, when the sum leaves the range of ids.
  uint32_t Decode(int32_t reference) {
    if (reference <= 0) return static_cast<uint32_t>(-int64_t{reference});
    highest_ = std::min<int64_t>(highest_ + reference, UINT32_MAX);
    return static_cast<uint32_t>(highest_);
  }

 private:
  int64_t highest_;
};

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_REFERENCE_H_
