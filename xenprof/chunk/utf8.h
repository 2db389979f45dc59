// protobuf refuses to read a `string` that is not UTF-8; file names and comms are any bytes.
#ifndef XENPROF_CHUNK_UTF8_H_
#define XENPROF_CHUNK_UTF8_H_

#include <string>

#include "absl/strings/string_view.h"
#include "chunk.pb.h"

namespace xenprof::chunk {

// `text` with each byte that belongs to no well-formed sequence as U+FFFD.
std::string ToUtf8(absl::string_view text);

// All strings of these.
void MakeUtf8(proto::Header* header);
void MakeUtf8(proto::Mode* mode);
void MakeUtf8(proto::HypervisorFacts* facts);

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_UTF8_H_
