// Where a reader's bytes come from.
#ifndef XENPROF_CHUNK_BYTE_SOURCE_H_
#define XENPROF_CHUNK_BYTE_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "xenprof/base/framing.h"

namespace xenprof::chunk {

class ByteSource {
 public:
  // `name` stands for the file in errors. What is no regular file is read whole, up to 1 GiB.
  static absl::StatusOr<std::unique_ptr<ByteSource>> FromDescriptor(UniqueFd fd, const std::string& name);
  static std::unique_ptr<ByteSource> FromBytes(std::string bytes);
  virtual ~ByteSource() = default;

  virtual uint64_t size() const = 0;
  // The bytes from `offset` on, `count` or as many as there are. Valid until the next call.
  virtual absl::StatusOr<absl::Span<const uint8_t>> Read(uint64_t offset, uint64_t count) = 0;
};

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_BYTE_SOURCE_H_
