// Keeps a small hostile payload from becoming huge in memory.
#ifndef XENPROF_CHUNK_PAYLOAD_LIMITS_H_
#define XENPROF_CHUNK_PAYLOAD_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace xenprof::chunk {

// Messages and strings in one Payload. Each costs protobuf on the order of 100 bytes, yet only 2 in the file;
// numbers cost at most 8 times their bytes.
inline constexpr uint64_t kMaxPayloadItems = uint64_t{2} << 20;

// Before a serialised Payload is given to protobuf: InvalidArgument when it holds more than `max_items`.
absl::Status CheckPayloadItems(absl::string_view payload, uint64_t max_items = kMaxPayloadItems);

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_PAYLOAD_LIMITS_H_
