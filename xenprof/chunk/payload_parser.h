// Parses payloads: a block's columns by hand, as protobuf is slow with millions of small numbers.
#ifndef XENPROF_CHUNK_PAYLOAD_PARSER_H_
#define XENPROF_CHUNK_PAYLOAD_PARSER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "chunk.pb.h"

namespace xenprof::chunk {

// Messages and strings in one Payload. Each costs protobuf on the order of 100 bytes, yet only 2 in the file;
// numbers cost at most 8 times their bytes.
inline constexpr uint64_t kMaxPayloadItems = uint64_t{2} << 20;

// Puts a serialised Payload in the place of what is in `payload`. InvalidArgument when it is malformed, or,
// so that a small hostile payload does not become huge in memory, when it holds more than `max_items`.
absl::Status ParsePayload(absl::string_view bytes, proto::Payload* payload,
                          uint64_t max_items = kMaxPayloadItems);

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_PAYLOAD_PARSER_H_
